// SPDX-License-Identifier: Apache-2.0
//
// Tag waits of many hosts and windows, put together by what people look at: one row for each host,
// disk, pool and kind of tags, with who waited and who held the tags.
//
// Disks are told apart by their names within a host, pools by the names of controller and driver:
// numbers change when an agent or a host starts anew.
//
// Threading: belongs to one thread. Units: nanoseconds. Errors: the query's context, which ends the
// query when there are too many groups.
#ifndef AGGREGATOR_QUERY_TAG_TABLE_H_
#define AGGREGATOR_QUERY_TAG_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "aggregator/query/names.h"
#include "aggregator/query/query_context.h"
#include "aggregator/store/store.h"
#include "common/histogram.h"
#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::aggregator {

struct TagMetrics {
  uint64_t waits = 0;
  uint64_t woke_at_once = 0;
  uint64_t rounds = 0;
  uint64_t wait_ns = 0;
  uint64_t max_wait_ns = 0;
  uint64_t ended_with_tag = 0;
  uint64_t ended_by_signal = 0;
  uint64_t ended_by_removal = 0;
  uint64_t ended_by_freeze = 0;
  uint64_t ended_unseen = 0;
  SparseHistogram wait;

  void Add(const v1::TagWaitRow& row);
  void Merge(const TagMetrics& other);
  void Store(v1::TagWaitMetrics* out) const;
};

struct TagGroup {
  struct Held {
    DeviceNumber device = 0;  // the last of this name
    uint64_t settings_at_ns = 0;
    std::optional<v1::TagDisk> settings;
    uint64_t tags_sum = 0;
    uint64_t tags_max = 0;
  };
  struct Waited {
    uint64_t waits = 0;
    uint64_t wait_ns = 0;
    uint64_t max_wait_ns = 0;
  };

  DeviceNumber device = 0;  // the last of this name
  uint64_t settings_at_ns = 0;
  std::optional<v1::TagSet> set;
  std::optional<v1::TagDisk> settings;
  std::optional<uint32_t> nr_tags_min;
  std::optional<uint32_t> nr_tags_max;
  std::set<uint32_t> hctxs;
  TagMetrics metrics;
  uint64_t active_sum = 0;
  uint64_t active_samples = 0;
  uint64_t active_max = 0;
  std::map<NameId, Held> holders;
  uint64_t holder_samples = 0;  // of each holder
  uint64_t nr_tags_sum = 0;
  std::map<std::pair<IntentNumber, NameId>, Waited> waiters;  // intent, comm
  std::map<int, uint64_t> sources;                            // waits
};

class TagTable {
 public:
  // `devices`: names of waiting disks that count; empty = all.
  TagTable(absl::flat_hash_set<std::string> devices, Names* names, QueryContext* context)
      : devices_(std::move(devices)), names_(names), context_(context) {}

  // False when the query must stop.
  bool Add(const ScannedTagWaits& block);

  struct Key {
    HostNumber host = 0;
    NameId device = 0;
    std::string pool;  // driver, controller, address, model; empty when unknown
    int kind = 0;
    bool reserved = false;
    auto operator<=>(const Key&) const = default;
  };
  const std::map<Key, TagGroup>& groups() const { return groups_; }

  size_t hosts_reporting() const { return hosts_.size(); }
  size_t hosts_inferring() const { return inferring_.size(); }
  std::optional<uint64_t> open_waits() const;

 private:
  struct Open {
    uint64_t at_ns = 0;
    std::optional<uint64_t> waits;
  };

  bool Wanted(NameId device) const;
  // Made when it is new; nullptr when the query must stop.
  TagGroup* Find(const Key& key);
  bool AddRows(const ScannedTagWaits& block);
  bool AddHolders(const ScannedTagWaits& block);

  const absl::flat_hash_set<std::string> devices_;
  Names* const names_;
  QueryContext* const context_;
  std::map<Key, TagGroup> groups_;
  std::map<HostNumber, Open> hosts_;
  std::set<HostNumber> inferring_;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_TAG_TABLE_H_
