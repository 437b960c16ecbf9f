// SPDX-License-Identifier: Apache-2.0
#include "node-agent/host/identity.h"

#include <sys/utsname.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <cctype>
#include <fstream>

#include "absl/random/random.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "node-agent/spool/file_layer.h"

namespace fleetblame::agent {
namespace {

// Keeps the id apart from what other programs derive from the same machine id.
constexpr std::string_view kSalt = "fleetblame host id 1";
constexpr size_t kMachineIdDigits = 32;

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  absl::StripAsciiWhitespace(&line);
  return line;
}

std::string Hex(uint64_t high, uint64_t low) { return absl::StrFormat("%016x%016x", high, low); }

}  // namespace

absl::Status CheckHostId(std::string_view host_id) {
  bool good = !host_id.empty() && host_id.size() <= 64;
  for (const char c : host_id) {
    good =
        good && (std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-');
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "host id \"", std::string(host_id), "\" must be 1 to 64 characters of A-Z a-z 0-9 . _ -"));
}

absl::StatusOr<std::string> DeriveHostId(const HostIdentityOptions& options) {
  const std::string machine_id = FirstLine(options.machine_id_path);
  // "uninitialized" stands there in images that were never booted.
  if (machine_id.size() == kMachineIdDigits) {
    const std::string text = absl::StrCat(std::string(kSalt), machine_id);
    const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
    return Hex(hash.high64, hash.low64);
  }
  const std::string path = absl::StrCat(options.state_directory, "/host-id");
  const std::string kept = FirstLine(path);
  if (CheckHostId(kept).ok()) return kept;
  absl::BitGen random;
  const std::string made = Hex(absl::Uniform<uint64_t>(random), absl::Uniform<uint64_t>(random));
  FileLayer& files = PosixFileLayer();
  absl::Status status = files.CreateDirectories(options.state_directory);
  if (status.ok()) status = WriteFileAtomically(files, path, made + "\n");
  if (!status.ok()) {
    return absl::Status(
        status.code(),
        absl::StrCat("there is no ", options.machine_id_path,
                     " to derive a host id from and none can be kept: ", status.message(),
                     "; give --host-id or a writable --state-dir"));
  }
  return made;
}

std::string ReadBootId() { return FirstLine("/proc/sys/kernel/random/boot_id"); }

std::string ReadHostname() {
  std::array<char, 256> name = {};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

std::string ReadKernelRelease() {
  utsname info;
  return ::uname(&info) == 0 ? info.release : "";
}

}  // namespace fleetblame::agent
