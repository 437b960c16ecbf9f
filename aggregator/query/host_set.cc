// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/host_set.h"

#include <algorithm>
#include <utility>

#include "common/selector/selector.h"

namespace fleetblame::aggregator {

absl::StatusOr<HostSet> HostSet::Choose(const ReadView& view, std::string_view selector_text) {
  absl::StatusOr<Selector> selector = Selector::Parse(selector_text);
  if (!selector.ok()) return selector.status();
  HostSet set;
  set.everything_ = selector->empty();
  set.hosts_ = view.Hosts();
  set.known_ = set.hosts_.size();
  if (!set.everything_) {
    std::erase_if(set.hosts_, [&](const HostRecord& h) {
      return !selector->Matches(SelectorTarget{h.host_id, h.hostname, h.kernel_release, &h.labels});
    });
  }
  std::sort(set.hosts_.begin(), set.hosts_.end(),
            [](const HostRecord& a, const HostRecord& b) { return a.number < b.number; });
  set.numbers_.reserve(set.hosts_.size());
  set.index_.reserve(set.hosts_.size());
  for (const HostRecord& h : set.hosts_) {
    set.index_.emplace(h.number, set.numbers_.size());
    set.numbers_.push_back(h.number);
  }
  return set;
}

const HostRecord* HostSet::Find(HostNumber number) const {
  auto at = index_.find(number);
  return at == index_.end() ? nullptr : &hosts_[at->second];
}

const std::string& NameOf(const HostRecord& host) {
  return host.hostname.empty() ? host.host_id : host.hostname;
}

}  // namespace fleetblame::aggregator
