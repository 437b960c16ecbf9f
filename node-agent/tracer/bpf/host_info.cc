// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/host_info.h"

#include <bpf/bpf.h>
#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace fleetblame::agent {
namespace {

std::string ReadFile(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

}  // namespace

std::string BuildIdFromNotes(std::string_view notes) {
  size_t at = 0;
  auto padded = [](size_t size) { return (size + 3) & ~size_t{3}; };
  while (at + sizeof(Elf64_Nhdr) <= notes.size()) {
    Elf64_Nhdr header;
    std::memcpy(&header, notes.data() + at, sizeof(header));
    at += sizeof(header);
    size_t name = at;
    size_t body = name + padded(header.n_namesz);
    size_t end = body + padded(header.n_descsz);
    if (body > notes.size() || body + header.n_descsz > notes.size()) return "";
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
        notes.substr(name, 3) == "GNU") {
      return std::string(notes.substr(body, header.n_descsz));
    }
    at = end;
  }
  return "";
}

std::string VmlinuxBuildId() { return BuildIdFromNotes(ReadFile("/sys/kernel/notes")); }

std::vector<std::string> WritebackReasons(const std::map<int64_t, std::string>& enumerators) {
  std::vector<std::string> reasons = {""};
  for (const auto& [value, name] : enumerators) {
    absl::string_view short_name = name;
    absl::ConsumePrefix(&short_name, "WB_REASON_");
    if (short_name == "MAX" || value < 0 || value > 250) continue;
    if (reasons.size() < static_cast<size_t>(value) + 2) reasons.resize(value + 2);
    reasons[value + 1] = absl::AsciiStrToLower(short_name);
  }
  return reasons;
}

absl::StatusOr<std::unique_ptr<std::istream>> OpenSymbols() {
  auto file = std::make_unique<std::ifstream>("/proc/kallsyms");
  if (!*file) {
    return absl::FailedPreconditionError(
        "cannot open /proc/kallsyms; the kernel needs CONFIG_KALLSYMS=y");
  }
  return std::unique_ptr<std::istream>(std::move(file));
}

std::map<std::string, FunctionRange> FindFunctions(std::istream& kallsyms,
                                                   const std::vector<std::string>& names) {
  std::map<std::string, FunctionRange> found;
  std::string line;
  // The table of a module is not sorted with the rest: first the starts, then the next start after
  // each.
  std::vector<uint64_t> starts;
  while (std::getline(kallsyms, line)) {
    char* end = nullptr;
    uint64_t address = std::strtoull(line.c_str(), &end, 16);
    if (address == 0 || end == line.c_str() || *end != ' ' || end[1] == '\0') continue;
    char type = end[1];
    if (type != 't' && type != 'T') continue;
    absl::string_view name(end + 2);
    name = absl::StripLeadingAsciiWhitespace(name);
    name = name.substr(0, name.find_first_of("\t "));
    starts.push_back(address);
    for (const std::string& wanted : names) {
      if (name == wanted) found[wanted].first = address;
    }
  }
  std::sort(starts.begin(), starts.end());
  for (auto& [name, range] : found) {
    auto next = std::upper_bound(starts.begin(), starts.end(), range.first);
    range.last = next == starts.end() ? range.first + 4096 : *next;
  }
  return found;
}

uint64_t SymbolTableGeneration() {
  static std::mutex mutex;
  static uint64_t generation = 0;
  static size_t seen = 0;
  size_t state = std::hash<std::string>()(ReadFile("/proc/modules"));
  uint32_t id = 0;
  while (bpf_prog_get_next_id(id, &id) == 0) state = state * 31 + id;
  std::lock_guard<std::mutex> lock(mutex);
  if (state != seen) {
    seen = state;
    ++generation;
  }
  return generation;
}

bool DirectoryHasEntries(const std::string& path) {
  std::error_code error;
  std::filesystem::directory_iterator it(path, error);
  return !error && it != std::filesystem::directory_iterator();
}

}  // namespace fleetblame::agent
