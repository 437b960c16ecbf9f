// SPDX-License-Identifier: Apache-2.0
//
// RocksDB's errors in the words of the rest of the program.
//
// Threading: pure.
#ifndef AGGREGATOR_STORE_ROCKS_STATUS_H_
#define AGGREGATOR_STORE_ROCKS_STATUS_H_

#include <rocksdb/slice.h>
#include <rocksdb/status.h>

#include <string_view>

#include "absl/status/status.h"

namespace fleetblame::aggregator {

// OK for OK. `doing` begins the sentence: "write to store /x: No space left on device".
// RESOURCE_EXHAUSTED for a full disk, DATA_LOSS for damage, NOT_FOUND, UNAVAILABLE for the rest.
absl::Status FromRocks(const rocksdb::Status& status, std::string_view doing);

inline rocksdb::Slice ToSlice(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view FromSlice(const rocksdb::Slice& slice) {
  return {slice.data(), slice.size()};
}

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_ROCKS_STATUS_H_
