// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/definitions_check.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kIntentIdBytes = 16;
constexpr int kMaxFrames = 256;
constexpr int kMaxVariants = 16;
constexpr size_t kMaxSymbolBytes = 1024;
constexpr size_t kMaxNameBytes = 256;
constexpr int kMaxLowerDevices = 64;
constexpr size_t kMaxPathBytes = 4096;

absl::Status Bad(const char* kind, uint32_t number, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("definition of ", kind, " ", number, ": ", what));
}

absl::Status CheckVariant(uint32_t number, const v1::IntentVariant& variant) {
  if (variant.frames_size() > kMaxFrames) return Bad("intent", number, "too many raw frames");
  if (variant.kernel_release().size() > kMaxNameBytes ||
      variant.vmlinux_build_id().size() > kMaxNameBytes) {
    return Bad("intent", number, "kernel release or build id too long");
  }
  for (const v1::RawFrame& frame : variant.frames()) {
    if (frame.symbol().size() > kMaxSymbolBytes || frame.module().size() > kMaxNameBytes) {
      return Bad("intent", number, "raw frame too long");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckIntent(uint32_t number, const v1::Intent& intent) {
  if (intent.intent_id().size() != kIntentIdBytes) {
    return Bad("intent", number,
               absl::StrCat("intent_id has ", intent.intent_id().size(), " bytes instead of ",
                            kIntentIdBytes));
  }
  if (intent.frames_size() > kMaxFrames) {
    return Bad("intent", number,
               absl::StrCat(intent.frames_size(), " frames; at most ", kMaxFrames));
  }
  if (intent.variants_size() > kMaxVariants) return Bad("intent", number, "too many variants");
  if (intent.modifier().size() > kMaxNameBytes) return Bad("intent", number, "modifier too long");
  for (const std::string& frame : intent.frames()) {
    if (frame.empty() || frame.size() > kMaxSymbolBytes) {
      return Bad("intent", number,
                 absl::StrCat("a frame has ", frame.size(), " bytes; 1 to ", kMaxSymbolBytes));
    }
  }
  for (const v1::IntentVariant& variant : intent.variants()) {
    if (absl::Status status = CheckVariant(number, variant); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckActor(uint32_t number, const v1::Actor& actor) {
  if (actor.comm().size() > kMaxNameBytes) return Bad("actor", number, "comm too long");
  if (actor.cgroup().size() > kMaxPathBytes) return Bad("actor", number, "cgroup too long");
  return absl::OkStatus();
}

absl::Status CheckDevice(uint32_t number, const v1::Device& device) {
  if (device.name().empty()) return Bad("device", number, "no name");
  if (device.name().size() > kMaxNameBytes || device.disk().size() > kMaxNameBytes ||
      device.model().size() > kMaxNameBytes || device.persistent_id().size() > kMaxNameBytes ||
      device.top().size() > kMaxNameBytes || device.alias().size() > kMaxNameBytes) {
    return Bad("device", number, "a text is too long");
  }
  if (device.lower_size() > kMaxLowerDevices) return Bad("device", number, "too many lower ones");
  for (const std::string& lower : device.lower()) {
    if (lower.size() > kMaxNameBytes) return Bad("device", number, "a text is too long");
  }
  return absl::OkStatus();
}

absl::Status CheckFile(uint32_t number, const v1::File& file) {
  if (file.path().size() > kMaxPathBytes) return Bad("file", number, "path too long");
  return absl::OkStatus();
}

template <typename Map, typename Check>
absl::Status CheckAll(const char* kind, const Map& map, Check check) {
  for (const auto& [number, definition] : map) {
    if (number == 0) return Bad(kind, 0, "number 0 means none and cannot be defined");
    if (absl::Status status = check(number, definition); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t CountDefinitions(const v1::Definitions& definitions) {
  return uint64_t{definitions.intents().size()} + definitions.actors().size() +
         definitions.devices().size() + definitions.files().size();
}

absl::Status CheckDefinitions(const v1::Definitions& definitions, uint64_t max_definitions) {
  uint64_t count = CountDefinitions(definitions);
  if (count > max_definitions) {
    return absl::ResourceExhaustedError(
        absl::StrCat(count, " definitions in one message; at most ", max_definitions));
  }
  absl::Status status = CheckAll("intent", definitions.intents(), CheckIntent);
  if (status.ok()) status = CheckAll("actor", definitions.actors(), CheckActor);
  if (status.ok()) status = CheckAll("device", definitions.devices(), CheckDevice);
  if (status.ok()) status = CheckAll("file", definitions.files(), CheckFile);
  return status;
}

}  // namespace fleetblame::aggregator
