// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/shared_labels.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace fleetblame::aggregator {
namespace {

using Label = std::pair<std::string, std::string>;

std::map<Label, uint32_t> CountLabels(const std::vector<const HostRecord*>& hosts) {
  std::map<Label, uint32_t> counts;
  for (const HostRecord* h : hosts) {
    for (const auto& [name, value] : h->labels) {
      // The pseudo-label hides a label of its name, as in selectors.
      if (name != "kernel") ++counts[{name, value}];
    }
    if (!h->kernel_release.empty()) ++counts[{"kernel", h->kernel_release}];
  }
  return counts;
}

double ShareDifference(const v1::CompareHostsResponse::SharedLabel& l) {
  double out = static_cast<double>(l.outliers_with()) / l.outliers();
  double rest = l.others() == 0 ? 0 : static_cast<double>(l.others_with()) / l.others();
  return out - rest;
}

}  // namespace

std::vector<v1::CompareHostsResponse::SharedLabel> FindSharedLabels(
    const std::vector<const HostRecord*>& outliers, const std::vector<const HostRecord*>& others) {
  std::vector<v1::CompareHostsResponse::SharedLabel> labels;
  std::map<Label, uint32_t> elsewhere = CountLabels(others);
  for (const auto& [label, count] : CountLabels(outliers)) {
    v1::CompareHostsResponse::SharedLabel l;
    l.set_name(label.first);
    l.set_value(label.second);
    l.set_outliers_with(count);
    l.set_outliers(static_cast<uint32_t>(outliers.size()));
    auto other = elsewhere.find(label);
    l.set_others_with(other == elsewhere.end() ? 0 : other->second);
    l.set_others(static_cast<uint32_t>(others.size()));
    if (ShareDifference(l) > 0) labels.push_back(std::move(l));
  }
  std::stable_sort(labels.begin(), labels.end(), [](const auto& a, const auto& b) {
    return std::make_tuple(ShareDifference(a), a.outliers_with()) >
           std::make_tuple(ShareDifference(b), b.outliers_with());
  });
  if (labels.size() > kMaxSharedLabels) labels.resize(kMaxSharedLabels);
  return labels;
}

}  // namespace fleetblame::aggregator
