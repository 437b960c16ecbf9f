// SPDX-License-Identifier: Apache-2.0
//
// Keys of rows as integers, so that rows of several sorted blocks can be put side by side. "Sorted"
// is what DecodeRows yields: tables ascending, rows ascending by key.
//
// Threading: plain values and functions.
#ifndef AGGREGATOR_STORE_ROW_KEYS_H_
#define AGGREGATOR_STORE_ROW_KEYS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::aggregator {

// Device, operation and confidence, issuer's actor and intent, dirtier's actor and intent, file.
inline constexpr size_t kKeyColumns = 7;
__extension__ using RowKey = unsigned __int128;

struct KeyTables {
  using Numbers = std::vector<uint32_t>;  // ascending
  Numbers devices;
  Numbers actors;
  Numbers intents;
  Numbers files;

  static KeyTables Of(const v1::RowBlock& block);
  // Adds what another sorted block has.
  void Unite(const v1::RowBlock& block);
  // Bits of each column, and whether a RowKey has room for all of them.
  std::array<int, kKeyColumns> Widths() const;
  bool Fit() const;
};

// The keys of all rows of a block in terms of `tables`, which must fit. Nothing when the block's
// tables hold what those do not.
std::optional<std::vector<RowKey>> KeysOf(const v1::RowBlock& block, const KeyTables& tables);

// The columns of one key, the other way round.
std::array<uint32_t, kKeyColumns> ColumnsOf(RowKey key, const std::array<int, kKeyColumns>& widths);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_ROW_KEYS_H_
