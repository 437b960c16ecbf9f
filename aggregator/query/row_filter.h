// SPDX-License-Identifier: Apache-2.0
//
// The Filter of a request, made ready for millions of rows: what depends on a definition (a comm, a
// regular expression over cgroups) is decided once for each store number and remembered.
//
// RowFilter is immutable after Compile and shared by all workers of a query; each worker has its
// own RowFilter::Tester. Errors: INVALID_ARGUMENT for lists or expressions that are too long or
// malformed, ids that are none or ambiguous; NOT_FOUND for intents that do not exist.
#ifndef AGGREGATOR_QUERY_ROW_FILTER_H_
#define AGGREGATOR_QUERY_ROW_FILTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "aggregator/query/memo.h"
#include "aggregator/query/names.h"
#include "common/row_block.h"
#include "proto/fleetblame/v1/query.pb.h"

namespace re2 {
class RE2;
}

namespace fleetblame::aggregator {

inline constexpr int kMaxFilterValues = 1000;

// Compiles an unanchored expression; `field` names it in errors. nullptr for an empty one.
absl::StatusOr<std::shared_ptr<const re2::RE2>> CompileRegex(std::string_view regex,
                                                             std::string_view field);

class RowFilter {
 public:
  // Lets every row of the top-most layer pass.
  RowFilter() = default;

  static absl::StatusOr<RowFilter> Compile(const v1::Filter& filter, v1::Side side,
                                           const ReadView& view, Names* names);

  // Increasing; empty when intents are not filtered.
  const std::vector<IntentNumber>& intents() const { return intents_; }
  bool uses_files() const { return file_regex_ != nullptr; }

  class Tester {
   public:
    Tester(const RowFilter* filter, Names* names) : filter_(filter), names_(names) {}
    bool Passes(const BlockRow& row);
    v1::Layer layer() const { return filter_->layer_; }
    // A row of a stacked device, or of one below, was among those that were tried.
    bool stacked_devices() const { return stacked_devices_; }

   private:
    bool InLayer(uint32_t device);

    const RowFilter* filter_;
    Names* names_;
    Memo<uint8_t, 0> actors_;
    Memo<uint8_t, 0> devices_;
    Memo<uint8_t, 0> layers_;
    bool stacked_devices_ = false;
    Memo<uint8_t, 0> reasons_;
    Memo<uint8_t, 0> files_;
  };

 private:
  bool all_pass_ = true;
  bool issuer_ = false;
  v1::Layer layer_ = v1::LAYER_TOP;
  absl::flat_hash_set<NameId> comms_;
  absl::flat_hash_set<NameId> devices_;
  absl::flat_hash_set<NameId> reasons_;
  uint32_t operations_ = 0;   // bit set of Operation, 0 = any
  uint32_t confidences_ = 0;  // likewise
  std::vector<IntentNumber> intents_;
  std::shared_ptr<const re2::RE2> cgroup_regex_;
  std::shared_ptr<const re2::RE2> file_regex_;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_ROW_FILTER_H_
