// SPDX-License-Identifier: Apache-2.0
//
// The hosts that a selector chooses, as one query sees them. Immutable once made; share it freely.
// Errors: INVALID_ARGUMENT from the selector.
#ifndef AGGREGATOR_QUERY_HOST_SET_H_
#define AGGREGATOR_QUERY_HOST_SET_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "aggregator/store/store.h"

namespace fleetblame::aggregator {

class HostSet {
 public:
  static absl::StatusOr<HostSet> Choose(const ReadView& view, std::string_view selector);

  const std::vector<HostRecord>& hosts() const { return hosts_; }      // by number
  const std::vector<HostNumber>& numbers() const { return numbers_; }  // increasing
  size_t size() const { return hosts_.size(); }
  // nullptr when it was not chosen.
  const HostRecord* Find(HostNumber number) const;
  bool Contains(HostNumber number) const { return Find(number) != nullptr; }
  // Whether no selector was given: all hosts of the store.
  bool everything() const { return everything_; }
  // Hosts of the store, chosen or not.
  size_t known() const { return known_; }

 private:
  std::vector<HostRecord> hosts_;
  std::vector<HostNumber> numbers_;
  absl::flat_hash_map<HostNumber, size_t> index_;
  bool everything_ = false;
  size_t known_ = 0;
};

// The hostname, or the id of a host that has none.
const std::string& NameOf(const HostRecord& host);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_HOST_SET_H_
