// SPDX-License-Identifier: Apache-2.0
//
// How keys are spelled. All numbers are big-endian, so that the order of bytes is the order of
// numbers; docs/store-format.md is the text that goes with it.
//
// Threading: pure functions.
#ifndef AGGREGATOR_STORE_KEYS_H_
#define AGGREGATOR_STORE_KEYS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "aggregator/store/store.h"

namespace fleetblame::aggregator {

// ---- building blocks
void PutBigEndian32(std::string* out, uint32_t value);
void PutBigEndian64(std::string* out, uint64_t value);
// Take from the front of `*in`; false when it is too short.
bool TakeBigEndian32(std::string_view* in, uint32_t* value);
bool TakeBigEndian64(std::string_view* in, uint64_t* value);

// ---- points: one column family a level
//   partition(4) kind(1) unit(4) last_ns(8) [suffix]
// `last_ns` is the last instant that the value covers (end - 1), so a value belongs to the bucket
// that holds this instant. The partition is last_ns divided by PartitionNs: retention drops whole
// partitions, and no table file spans two.
enum class PointKind : uint8_t {
  kHostRows = 1,    // unit: host;   suffix in kRaw: spool epoch(8) seq(8)
  kCoverage = 2,    // unit: host;   suffix as above
  kLosses = 3,      // unit: host;   suffix as above
  kGroupRows = 4,   // unit: group of hosts; not in kRaw
  kIntentRows = 5,  // unit: intent; suffix: group(4); from kFirstIntentLevel on
  kTagWaits = 6,    // unit: host;   suffix as of kCoverage
};
// Level from which rows are kept by intent too. They hold every row a second time, and most a third
// time, so not below an hour.
inline constexpr Level kFirstIntentLevel = Level::k1h;
inline constexpr size_t kPartitionPrefixBytes = 4;

// A multiple of the next level's bucket, so that a bucket's parts are never in two partitions.
uint64_t PartitionNs(Level level);

struct PointKey {
  uint32_t partition = 0;
  PointKind kind = PointKind::kHostRows;
  uint32_t unit = 0;
  uint64_t last_ns = 0;
  std::string_view suffix;
};
std::string EncodePointKey(Level level, PointKind kind, uint32_t unit, uint64_t last_ns);
std::string EncodeRawSuffix(uint64_t spool_epoch, uint64_t seq);
// Keys of raw rows that upkeep has rewritten: the windows of a minute as one value, and windows
// that stand alone again. No key of a batch looks like these.
std::string SplitKey(HostNumber host, uint64_t minute_last_ns);
std::string RestoredKey(HostNumber host, uint64_t last_ns, uint32_t number);
// The suffix points into `key`.
std::optional<PointKey> DecodePointKey(std::string_view key);

// ---- groups: hosts that are summed together in rollups over hosts
inline constexpr uint32_t kHostsPerGroup = 256;
inline uint32_t GroupOf(HostNumber host) { return host / kHostsPerGroup; }

// ---- meta
std::string EpochKey();
std::string HorizonKey(Level level);
std::string HostKey(HostNumber host);
std::string HighWaterKey(HostNumber host, uint64_t spool_epoch);
std::string DirectivesKey(std::string_view name);
std::string IntentSeenKey(IntentNumber intent);
std::string DictionaryUseKey(HostNumber host, uint64_t dictionary_id);
// First bytes of the keys above, for iteration.
std::string HostPrefix();
std::string DirectivesPrefix();
std::string IntentSeenPrefix();
std::string DictionaryUsePrefix();

// ---- definitions
enum class DefinitionKind : uint8_t { kIntent = 1, kActor = 2, kDevice = 3, kFile = 4 };
inline constexpr int kDefinitionKinds = 4;
std::string DefinitionKey(DefinitionKind kind, uint32_t number);
std::string DefinitionPrefix(DefinitionKind kind);
// What a definition is found by: the intent id, or the content itself.
std::string IndexKey(DefinitionKind kind, std::string_view content);

// ---- dictionaries: agent's number to store's number
std::string DictionaryPrefix(HostNumber host, uint64_t dictionary_id);
std::string DictionaryKey(HostNumber host, uint64_t dictionary_id, DefinitionKind kind,
                          uint32_t agent_number);

// ---- gaps
std::string GapPrefix(HostNumber host);
std::string GapKey(HostNumber host, const v1::Gap& gap);

// The first key behind all that begin with `prefix`.
std::string PrefixEnd(std::string prefix);

// Values of four and eight bytes.
std::string Value32(uint32_t value);
std::string Value64(uint64_t value);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_KEYS_H_
