// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/definition_cache.h"

namespace fleetblame::aggregator {
namespace {

// About 150 bytes each, an intent about 1 kB: some 150 MB when all are full.
constexpr size_t kMaxActors = 500'000;
constexpr size_t kMaxDevices = 100'000;
constexpr size_t kMaxFiles = 200'000;
constexpr size_t kMaxIntents = 40'000;

}  // namespace

DefinitionCache::DefinitionCache()
    : intents_(kMaxIntents), actors_(kMaxActors), devices_(kMaxDevices), files_(kMaxFiles) {}

absl::StatusOr<std::shared_ptr<const v1::Intent>> DefinitionCache::Intent(const ReadView& view,
                                                                          IntentNumber n) {
  return intents_.Get(n, [&]() -> absl::StatusOr<v1::Intent> {
    absl::StatusOr<v1::Intent> intent = view.Intent(n);
    if (intent.ok()) intent->clear_variants();
    return intent;
  });
}

absl::StatusOr<std::shared_ptr<const v1::Actor>> DefinitionCache::Actor(const ReadView& view,
                                                                        ActorNumber n) {
  return actors_.Get(n, [&] { return view.Actor(n); });
}

absl::StatusOr<std::shared_ptr<const v1::Device>> DefinitionCache::Device(const ReadView& view,
                                                                          DeviceNumber n) {
  return devices_.Get(n, [&] { return view.Device(n); });
}

absl::StatusOr<std::shared_ptr<const v1::File>> DefinitionCache::File(const ReadView& view,
                                                                      FileNumber n) {
  return files_.Get(n, [&] { return view.File(n); });
}

}  // namespace fleetblame::aggregator
