// SPDX-License-Identifier: Apache-2.0
//
// Which group a row belongs to: the dimensions of a request, and keys made of one small number a
// dimension (a store number, an enum value, or a NameId where several store numbers read the same).
// Keys mean something within one query only; Describe turns those that are returned into text.
//
// Grouping is immutable and shared; KeyMaker belongs to one worker.
// Errors: INVALID_ARGUMENT for dimensions that do not exist or stand twice.
#ifndef AGGREGATOR_QUERY_GROUPING_H_
#define AGGREGATOR_QUERY_GROUPING_H_

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregator/query/host_set.h"
#include "aggregator/query/memo.h"
#include "aggregator/query/names.h"
#include "common/row_block.h"
#include "google/protobuf/repeated_field.h"
#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::aggregator {

inline constexpr size_t kMaxDimensions = 9;

struct GroupKey {
  std::array<uint32_t, kMaxDimensions> parts{};

  // In place: the library's comparison of arrays is a call of memcmp, for every row.
  friend bool operator==(const GroupKey& a, const GroupKey& b) {
    uint32_t different = 0;
    for (size_t i = 0; i < kMaxDimensions; ++i) different |= a.parts[i] ^ b.parts[i];
    return different == 0;
  }
  // Most parts are 0; a multiply for each pair is a third of the cost of hashing the bytes.
  template <typename H>
  friend H AbslHashValue(H h, const GroupKey& key) {
    uint64_t mixed = key.parts[kMaxDimensions - 1];
    for (size_t i = 0; i + 1 < kMaxDimensions; i += 2) {
      const uint64_t pair = uint64_t{key.parts[i]} << 32 | key.parts[i + 1];
      mixed = (mixed ^ pair) * 0x9e3779b97f4a7c15u;
      mixed ^= mixed >> 29;
    }
    return H::combine(std::move(h), mixed);
  }
};

class Grouping {
 public:
  static absl::StatusOr<Grouping> Make(const google::protobuf::RepeatedField<int>& by,
                                       v1::Side side);
  // For fixed dimensions.
  Grouping(std::vector<v1::Dimension> by, v1::Side side);

  const std::vector<v1::Dimension>& by() const { return by_; }
  bool Has(v1::Dimension dimension) const;
  bool issuer() const { return issuer_; }

  // Values of a key, one a dimension, for an answer.
  absl::StatusOr<std::vector<v1::DimensionValue>> Describe(const GroupKey& key,
                                                           const HostSet& hosts,
                                                           const ReadView& view,
                                                           Names* names) const;
  // An order of keys that does not depend on how a query happened to run.
  bool Less(const GroupKey& a, const GroupKey& b, const Names& names) const;

 private:
  std::vector<v1::Dimension> by_;
  bool issuer_ = false;
};

// An intent as an answer shows it.
absl::StatusOr<v1::DimensionValue> DescribeIntent(IntentNumber number, const ReadView& view,
                                                  Names* names);

class KeyMaker {
 public:
  KeyMaker(const Grouping* grouping, Names* names) : grouping_(grouping), names_(names) {}

  GroupKey Make(HostNumber host, const BlockRow& row);

 private:
  static constexpr NameId kUnknown = UINT32_MAX;
  const Grouping* grouping_;
  Names* names_;
  Memo<NameId, kUnknown> comms_;
  Memo<NameId, kUnknown> cgroups_;
  Memo<NameId, kUnknown> devices_;
  Memo<NameId, kUnknown> partitions_;
  Memo<NameId, kUnknown> top_devices_;
  Memo<NameId, kUnknown> reasons_;
  Memo<NameId, kUnknown> files_;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_GROUPING_H_
