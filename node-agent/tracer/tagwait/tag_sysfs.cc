// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/tagwait/tag_sysfs.h"

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "re2/re2.h"

namespace fleetblame::agent {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxValueBytes = 128;

// First line of an attribute in plain ASCII; firmware writes what it likes.
std::string Attribute(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return "";
  absl::StripAsciiWhitespace(&line);
  if (line.size() > kMaxValueBytes) line.resize(kMaxValueBytes);
  for (char& c : line) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return line == "(null)" || line == "<NULL>" ? "" : line;
}

std::string FirstAttribute(const fs::path& directory, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    std::string value = Attribute(directory / name);
    if (!value.empty()) return value;
  }
  return "";
}

std::optional<uint32_t> Number(const fs::path& path) {
  uint32_t value = 0;
  if (!absl::SimpleAtoi(Attribute(path), &value)) return std::nullopt;
  return value;
}

std::string PciId(const fs::path& directory, const char* vendor, const char* device) {
  const std::string a = Attribute(directory / vendor);
  const std::string b = Attribute(directory / device);
  if (a.empty() || b.empty()) return "";
  return absl::StrCat(absl::StripPrefix(a, "0x"), ":", absl::StripPrefix(b, "0x"));
}

std::string DriverOf(const fs::path& directory) {
  std::error_code error;
  const fs::path driver = fs::canonical(directory / "driver", error);
  return error ? "" : driver.filename().string();
}

std::string BlockDirectory(const std::string& sysfs, uint32_t major, uint32_t minor) {
  std::error_code error;
  const fs::path directory =
      fs::canonical(fs::path(sysfs) / "dev/block" / absl::StrCat(major, ":", minor), error);
  return error ? "" : directory.string();
}

void ReadScsiHost(const std::string& sysfs, v1::TagSet* set) {
  const fs::path host = fs::path(sysfs) / "class/scsi_host" / set->host();
  set->set_driver(Attribute(host / "proc_name"));
  set->set_model(FirstAttribute(host, {"model_name", "modelname", "board_name", "model_desc"}));
  set->set_firmware(
      FirstAttribute(host, {"version_fw", "fw_version", "fwrev", "firmware_revision"}));
  if (auto value = Number(host / "can_queue")) set->set_can_queue(*value);
  if (auto value = Number(host / "cmd_per_lun")) set->set_cmd_per_lun(*value);
}

void ReadNvme(const std::string& sysfs, v1::TagSet* set) {
  const fs::path controller = fs::path(sysfs) / "class/nvme" / set->host();
  set->set_driver("nvme");
  set->set_model(Attribute(controller / "model"));
  set->set_firmware(Attribute(controller / "firmware_rev"));
}

}  // namespace

void ReadController(const std::string& sysfs, uint32_t major, uint32_t minor, v1::TagSet* set) {
  static const LazyRE2 kScsiHost = {R"(host\d+)"};
  static const LazyRE2 kNvme = {R"(nvme\d+)"};
  static const LazyRE2 kVirtual = {R"(virtio\d+)"};
  static const LazyRE2 kPci = {R"([0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"};
  const std::string directory = BlockDirectory(sysfs, major, minor);
  if (directory.empty()) return;
  fs::path walked;
  fs::path pci;
  fs::path controller;
  for (const fs::path& part : fs::path(directory)) {
    walked /= part;
    const std::string name = part.string();
    if (RE2::FullMatch(name, *kPci)) pci = walked;
    if (RE2::FullMatch(name, *kScsiHost) || RE2::FullMatch(name, *kNvme) ||
        RE2::FullMatch(name, *kVirtual)) {
      controller = walked;
    }
  }
  if (!pci.empty()) {
    set->set_pci_address(pci.filename().string());
    set->set_pci_id(PciId(pci, "vendor", "device"));
    set->set_pci_subsystem_id(PciId(pci, "subsystem_vendor", "subsystem_device"));
  }
  set->set_host(controller.filename().string());
  if (RE2::FullMatch(set->host(), *kScsiHost)) {
    ReadScsiHost(sysfs, set);
  } else if (RE2::FullMatch(set->host(), *kNvme)) {
    ReadNvme(sysfs, set);
  } else if (!controller.empty()) {
    set->set_driver(DriverOf(controller));
  } else if (absl::StartsWith(fs::path(directory).filename().string(), "nullb")) {
    // Has no device above it that could name the driver.
    set->set_driver("null_blk");
  }
  if (set->driver().empty() && !pci.empty()) set->set_driver(DriverOf(pci));
  if (set->model().empty()) set->set_model(set->pci_id());
}

void ReadQueue(const std::string& sysfs, uint32_t major, uint32_t minor, v1::TagDisk* disk) {
  const std::string directory = BlockDirectory(sysfs, major, minor);
  if (directory.empty()) return;
  const fs::path queue = fs::path(directory) / "queue";
  // The one in use stands in brackets.
  const std::string schedulers = Attribute(queue / "scheduler");
  static const LazyRE2 kChosen = {R"(\[([^\]]+)\])"};
  std::string chosen;
  disk->set_scheduler(RE2::PartialMatch(schedulers, *kChosen, &chosen) ? chosen : schedulers);
  if (auto value = Number(queue / "nr_requests")) disk->set_nr_requests(*value);
  if (auto value = Number(fs::path(directory) / "device/queue_depth")) {
    disk->set_queue_depth(*value);
  }
}

}  // namespace fleetblame::agent
