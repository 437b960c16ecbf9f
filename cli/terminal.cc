// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <cwchar>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace fleetblame::cli {
namespace {

// One character at the front of `text`: its bytes and columns. `valid` is false for a byte that
// begins no printable character.
struct Character {
  size_t bytes = 1;
  int columns = 1;
  bool valid = false;
};

// Marks, embeddings, overrides and isolates of the bidirectional algorithm.
bool TurnsDirection(wchar_t c) {
  return c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069);
}

Character Next(std::string_view text) {
  std::mbstate_t state{};
  wchar_t wide;
  size_t bytes = std::mbrtowc(&wide, text.data(), text.size(), &state);
  if (bytes == 0 || bytes > text.size()) return {};
  if (TurnsDirection(wide)) return {bytes, static_cast<int>(bytes), false};
  int columns = wcwidth(wide);
  if (columns < 0) return {bytes, static_cast<int>(bytes), false};
  return {bytes, columns, true};
}

}  // namespace

bool ShownOnTerminal(const std::ostream& out) {
  static const bool terminal = isatty(STDOUT_FILENO) != 0;
  return terminal && &out == &std::cout;
}

Terminal InitTerminal() {
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) std::setlocale(LC_CTYPE, "");
  Terminal terminal;
  terminal.is_tty = isatty(STDOUT_FILENO) != 0;
  const char* no_color = std::getenv("NO_COLOR");
  terminal.colour = terminal.is_tty && (no_color == nullptr || *no_color == '\0');
  int columns;
  const char* env = std::getenv("COLUMNS");
  winsize size{};
  if (env != nullptr && absl::SimpleAtoi(env, &columns) && columns > 0) {
    terminal.width = columns;
  } else if (terminal.is_tty && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.width = size.ws_col;
  }
  return terminal;
}

int DisplayWidth(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    Character c = Next(text);
    width += c.columns;
    text.remove_prefix(c.bytes);
  }
  return width;
}

std::string Truncate(std::string_view text, int width) {
  if (DisplayWidth(text) <= width) return std::string(text);
  if (width <= 0) return "";
  int used = 0;
  size_t bytes = 0;
  while (bytes < text.size()) {
    Character c = Next(text.substr(bytes));
    if (used + c.columns > width - 1) break;
    used += c.columns;
    bytes += c.bytes;
  }
  return std::string(text.substr(0, bytes)) + "…";
}

std::string Printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    Character c = Next(text);
    for (size_t i = 0; i < c.bytes; ++i) {
      if (c.valid) {
        out += text[i];
      } else {
        absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(text[i]));
      }
    }
    text.remove_prefix(c.bytes);
  }
  return out;
}

}  // namespace fleetblame::cli
