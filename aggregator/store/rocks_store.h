// SPDX-License-Identifier: Apache-2.0
//
// Opens the store on RocksDB. docs/store-format.md describes what is on disk.
//
// Threading: as store.h says. Errors of OpenRocksStore, each with the way out in its text:
//   FAILED_PRECONDITION  another process has it open; written by a newer version; not a store
//   DATA_LOSS            damaged; nothing was changed on disk
//   RESOURCE_EXHAUSTED   disk full
//   UNAVAILABLE          any other error of the filesystem
#ifndef AGGREGATOR_STORE_ROCKS_STORE_H_
#define AGGREGATOR_STORE_ROCKS_STORE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "aggregator/store/store.h"

namespace fleetblame::aggregator {

struct RocksStoreOptions {
  std::string path;
  bool create_if_missing = true;
  // How a person starts a repair; only for error messages.
  std::string repair_command = "fleetblame-aggregator --repair";

  // ---- memory
  size_t block_cache_bytes = 192 << 20;
  size_t write_buffer_bytes = 192 << 20;        // all memtables together
  size_t dictionary_cache_entries = 4'000'000;  // agent's number to store's number; ~20 bytes each

  // ---- disk
  // Writes are refused, with a clear error, while less is free; so that upkeep can still run.
  uint64_t min_free_bytes = 256 << 20;
  int background_threads = 2;

  // ---- bounds on definitions. What comes beyond is folded into one entry "…/other", counted.
  // An intent beyond its bound makes its batch invalid.
  uint32_t max_intents = 1'000'000;
  uint32_t max_actors = 4'000'000;
  uint32_t max_devices = 1'000'000;
  uint32_t max_files = 20'000'000;
  size_t max_variants_per_intent = 64;
  // Dictionaries of an agent's earlier lives go after this long without use.
  uint64_t dictionary_keep_ns = 30ull * 86400 * 1'000'000'000;

  // ---- retention by level, counted from the end of the data; must not shrink from level to level
  std::array<uint64_t, kLevels> retention_ns = {
      24ull * 3600 * 1'000'000'000,           // raw: 1 day
      7ull * 24 * 3600 * 1'000'000'000,       // 1 min: 1 week
      35ull * 24 * 3600 * 1'000'000'000,      // 10 min: 5 weeks
      400ull * 24 * 3600 * 1'000'000'000,     // 1 h: 13 months
      400ull * 24 * 3600 * 1'000'000'000,     // 6 h: likewise
      5ull * 366 * 24 * 3600 * 1'000'000'000  // 1 d: 5 years
  };
  uint64_t gap_retention_ns = 400ull * 24 * 3600 * 1'000'000'000;

  // ---- rollups
  // A bucket is summed up this long after its end at the earliest, ...
  uint64_t rollup_grace_ns = 20ull * 1'000'000'000;
  // ... and this long after the last late batch for it, by level (entry of kRaw unused).
  std::array<uint64_t, kLevels> rollup_settle_ns = {
      0, 3'000'000'000, 15'000'000'000, 60'000'000'000, 120'000'000'000, 300'000'000'000};
  // Files that keep their name in one bucket of one host, by level; the rest becomes file 0.
  std::array<uint32_t, kLevels> rollup_files = {0, 1000, 100, 100, 100, 100};
  // Rows of one host and bucket beyond this lose first their file, then their actors.
  size_t rollup_max_rows = 20'000;
};

absl::StatusOr<std::unique_ptr<Store>> OpenRocksStore(const RocksStoreOptions& options);

// Salvages what can be read of a damaged store. Damaged table files are kept in `path`/lost. The
// store must not be open.
absl::Status RepairRocksStore(const RocksStoreOptions& options);

// Rewrites all of a store as small as it goes, as happens in the background in time. The store must
// not be open.
absl::Status CompactRocksStore(const RocksStoreOptions& options);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_ROCKS_STORE_H_
