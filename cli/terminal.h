// SPDX-License-Identifier: Apache-2.0
//
// What stdout can show: its width, whether colour is welcome, and how many columns a string takes.
//
// Call InitTerminal once from main before anything else here; after that any thread may read.
#ifndef CLI_TERMINAL_H_
#define CLI_TERMINAL_H_

#include <ostream>
#include <string>
#include <string_view>

namespace fleetblame::cli {

struct Terminal {
  bool is_tty = false;
  bool colour = false;  // a terminal, and NO_COLOR unset
  int width = 0;        // columns; 0 = unlimited (pipe or file)
};

// Reads stdout, COLUMNS and NO_COLOR and sets the character type locale.
Terminal InitTerminal();

// Columns that `text` takes. Bytes that are not UTF-8 count one each.
int DisplayWidth(std::string_view text);

// The longest prefix of at most `width` columns; ends in "…" when something was cut.
std::string Truncate(std::string_view text, int width);

// Names come from kernels that others control: control characters, those that turn the direction of
// writing, and invalid UTF-8 become "\xNN", so that no host can send escape sequences to the
// terminal of an investigator, or show one name as another.
std::string Printable(std::string_view text);

// Whether `out` goes to a terminal, and so to a person. What a program reads is left as it is.
bool ShownOnTerminal(const std::ostream& out);

}  // namespace fleetblame::cli

#endif  // CLI_TERMINAL_H_
