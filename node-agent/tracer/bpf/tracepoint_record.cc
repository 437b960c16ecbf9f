// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/tracepoint_record.h"

#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace fleetblame::agent {

std::map<std::string, uint32_t> TracepointRecord(const std::string& system,
                                                 const std::string& tracepoint) {
  for (const char* root : {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}) {
    std::ifstream format(absl::StrCat(root, "/events/", system, "/", tracepoint, "/format"));
    if (format) return ParseRecord(format);
  }
  return {};
}

// A line is "<tab>field:dev_t dev;<tab>offset:8;<tab>size:4;<tab>signed:0;".
std::map<std::string, uint32_t> ParseRecord(std::istream& format) {
  std::map<std::string, uint32_t> offsets;
  std::string line;
  while (std::getline(format, line)) {
    const std::vector<std::string> parts = absl::StrSplit(line, ';');
    if (parts.size() < 2) continue;
    absl::string_view declaration = absl::StripAsciiWhitespace(parts[0]);
    absl::string_view place = absl::StripAsciiWhitespace(parts[1]);
    uint32_t offset = 0;
    if (!absl::ConsumePrefix(&declaration, "field:") || !absl::ConsumePrefix(&place, "offset:") ||
        !absl::SimpleAtoi(place, &offset)) {
      continue;
    }
    const std::vector<absl::string_view> words = absl::StrSplit(declaration, ' ');
    // An array's size stands behind its name.
    const std::vector<absl::string_view> name = absl::StrSplit(words.back(), '[');
    offsets[std::string(name.front())] = offset;
  }
  return offsets;
}

}  // namespace fleetblame::agent
