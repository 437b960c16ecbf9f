// SPDX-License-Identifier: Apache-2.0
#include "node-agent/symbols/kallsyms_line.h"

#include <algorithm>
#include <charconv>
#include <streambuf>

namespace fleetblame::agent {
namespace {

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c != '\x7f'; });
}

}  // namespace

std::optional<KallsymsLine> ParseKallsymsLine(std::string_view line) {
  KallsymsLine parsed;
  auto [end, error] =
      std::from_chars(line.data(), line.data() + line.size(), parsed.address, /*base=*/16);
  if (error != std::errc()) return std::nullopt;
  std::string_view rest = line.substr(static_cast<size_t>(end - line.data()));
  // " T name" at least.
  if (rest.size() < 4 || rest[0] != ' ' || rest[2] != ' ') return std::nullopt;
  char type = rest[1];
  parsed.is_text = type == 't' || type == 'T' || type == 'w' || type == 'W';
  rest.remove_prefix(3);
  size_t name_end = rest.find_first_of(" \t");
  parsed.name = rest.substr(0, name_end);
  if (parsed.name.empty() || !IsPrintable(parsed.name)) return std::nullopt;
  if (name_end == rest.npos) return parsed;
  rest.remove_prefix(name_end);
  size_t open = rest.find_first_not_of(" \t");
  if (open == rest.npos) return parsed;
  std::string_view module = rest.substr(open);
  if (module.size() < 3 || module.front() != '[') return std::nullopt;
  size_t close = module.find(']');
  if (close == module.npos || close == 1) return std::nullopt;
  parsed.module = module.substr(1, close - 1);
  if (!IsPrintable(parsed.module)) return std::nullopt;
  return parsed;
}

bool LineReader::Next(std::string_view* line, bool* whole) {
  // Straight from the buffer of the stream: istream::get costs a sentry a character, and this reads
  // some ten million of them.
  buffer_.clear();
  *whole = true;
  if (!in_.good()) return false;
  std::streambuf* source = in_.rdbuf();
  bool any = false;
  using Traits = std::streambuf::traits_type;
  for (;;) {
    int c = source->sbumpc();
    if (Traits::eq_int_type(c, Traits::eof())) {
      in_.setstate(std::ios::eofbit);
      break;
    }
    any = true;
    if (c == '\n') break;
    if (buffer_.size() < max_line_bytes_) {
      buffer_.push_back(Traits::to_char_type(c));
    } else {
      *whole = false;
    }
  }
  *line = buffer_;
  return any;
}

}  // namespace fleetblame::agent
