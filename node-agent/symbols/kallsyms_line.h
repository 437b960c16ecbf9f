// SPDX-License-Identifier: Apache-2.0
//
// One line of /proc/kallsyms, and lines of bounded length out of a stream.
//
// Threading: as values are. Errors: a line that makes no sense is no line.
#ifndef NODE_AGENT_SYMBOLS_KALLSYMS_LINE_H_
#define NODE_AGENT_SYMBOLS_KALLSYMS_LINE_H_

#include <cstddef>
#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <string_view>

namespace fleetblame::agent {

// Views into the text that was parsed.
struct KallsymsLine {
  uint64_t address = 0;
  bool is_text = false;  // type t, T, w or W
  std::string_view name;
  std::string_view module;  // without brackets; empty = core kernel
};

// "ffffffff81000000 T _stext" or "ffffffffc0201000 t ext4_fill_super<tab>[ext4]".
std::optional<KallsymsLine> ParseKallsymsLine(std::string_view line);

// Splits a stream into lines without ever holding more than one buffer of it.
class LineReader {
 public:
  LineReader(std::istream& in, size_t max_line_bytes) : in_(in), max_line_bytes_(max_line_bytes) {}

  // The next line without its newline; valid until the next call. `*whole` is false when it was
  // longer than the limit: then only its beginning is given. False at the end of the stream.
  bool Next(std::string_view* line, bool* whole);

 private:
  std::istream& in_;
  const size_t max_line_bytes_;
  std::string buffer_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_SYMBOLS_KALLSYMS_LINE_H_
