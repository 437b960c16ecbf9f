// SPDX-License-Identifier: Apache-2.0
//
// A store in a directory of its own, for tests that harm it: settings that make a small store
// behave like a large one, and what of a model is durable.
#ifndef AGGREGATOR_STORE_TESTING_TEMP_STORE_H_
#define AGGREGATOR_STORE_TESTING_TEMP_STORE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "aggregator/store/rocks_store.h"
#include "aggregator/store/testing/store_model.h"

namespace fleetblame::aggregator {

inline RocksStoreOptions SmallStore(const std::string& name) {
  RocksStoreOptions options;
  options.path = testing::TempDir() + "/" + name + "_" + std::to_string(getpid());
  std::filesystem::remove_all(options.path);
  options.min_free_bytes = 0;
  options.rollup_settle_ns = {};
  options.write_buffer_bytes = 8 << 20;
  options.block_cache_bytes = 8 << 20;
  options.rollup_max_rows = size_t{1} << 30;  // models do not fold
  options.retention_ns.fill(3650ull * 86400 * kTestSecondNs);
  return options;
}

// The batches of one agent: the same for the same seed, so that a process that died can be
// followed.
inline ModelAgent::Outgoing NthBatch(ModelAgent* agent) {
  uint64_t n = agent->seq + 1;
  return agent->Next(kTestStartUnixNs + n * 20 * kTestSecondNs, 10 * kTestSecondNs, 6);
}

inline constexpr ScanRange kAllTime{0, UINT64_MAX, Level::k1d};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_TESTING_TEMP_STORE_H_
