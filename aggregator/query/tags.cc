// SPDX-License-Identifier: Apache-2.0
//
// Query.Tags: which disks waited for tags, who held the tags, and which controllers and models
// starve most. The summary's totals come from the rows of IO, as everywhere.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "aggregator/query/group_scan.h"
#include "aggregator/query/handlers.h"
#include "aggregator/query/tag_table.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kDefaultLimit = 20;
constexpr uint32_t kDefaultWaiters = 5;
constexpr uint32_t kMaxWaiters = 100;
constexpr int kMaxDevices = 1000;

using Entry = std::pair<const TagTable::Key, TagGroup>;

// What all hosts sent in the range, for the summary.
absl::StatusOr<GroupResult> ScanTotals(const QueryRun& run, QueryFrame* frame) {
  const Grouping grouping({}, v1::SIDE_DIRTIER);
  const RowFilter filter;
  GroupQuery query;
  query.grouping = &grouping;
  query.filter = &filter;
  query.plan =
      PlanScan(grouping, filter, frame->hosts(), frame->range(), run.options->max_host_blocks);
  query.histograms = false;
  return RunGroups(frame->env(), frame->names(), query);
}

std::string ModelOf(const QueryRun& run, DeviceNumber number) {
  if (number == 0) return "";
  auto device = run.cache->Device(*run.view, number);
  return device.ok() ? (*device)->model() : "";
}

// Without the numbers, which mean nothing to others.
void StoreSettings(const v1::TagDisk& disk, v1::TagDisk* out) {
  *out = disk;
  out->clear_set();
  out->clear_device();
}

void StoreHolders(const QueryRun& run, const TagTable::Key& key, const TagGroup& group,
                  const Names& names, v1::TagsResponse::Row* row) {
  std::vector<std::pair<NameId, const TagGroup::Held*>> order;
  for (const auto& [name, held] : group.holders) order.emplace_back(name, &held);
  std::sort(order.begin(), order.end(), [&names](const auto& a, const auto& b) {
    if (a.second->tags_sum != b.second->tags_sum) return a.second->tags_sum > b.second->tags_sum;
    return names.Text(a.first) < names.Text(b.first);
  });
  for (const auto& [name, held] : order) {
    v1::TagsResponse::Holder* holder = row->add_holders();
    holder->set_device(names.Text(name));
    holder->set_model(ModelOf(run, held->device));
    holder->set_waiter(name == key.device);
    holder->set_tags_sum(held->tags_sum);
    holder->set_tags_max(held->tags_max);
    holder->set_samples(group.holder_samples);
    holder->set_nr_tags_sum(group.nr_tags_sum);
    if (held->settings.has_value()) StoreSettings(*held->settings, holder->mutable_settings());
  }
}

absl::Status StoreWaiters(const QueryRun& run, const TagGroup& group, size_t limit, Names* names,
                          v1::TagsResponse::Row* row) {
  using Waiter = std::pair<const std::pair<IntentNumber, NameId>, TagGroup::Waited>;
  std::vector<const Waiter*> order;
  for (const Waiter& waiter : group.waiters) order.push_back(&waiter);
  std::sort(order.begin(), order.end(), [](const Waiter* a, const Waiter* b) {
    return std::make_tuple(b->second.wait_ns, b->second.waits, a->first) <
           std::make_tuple(a->second.wait_ns, a->second.waits, b->first);
  });
  const size_t shown = std::min(limit, order.size());
  for (size_t i = 0; i < shown; ++i) {
    v1::TagsResponse::Waiter* waiter = row->add_waiters();
    waiter->set_comm(names->Text(order[i]->first.second));
    auto intent = DescribeIntent(order[i]->first.first, *run.view, names);
    if (!intent.ok()) return intent.status();
    *waiter->mutable_intent() = *std::move(intent);
    waiter->set_waits(order[i]->second.waits);
    waiter->set_wait_ns(order[i]->second.wait_ns);
    waiter->set_max_wait_ns(order[i]->second.max_wait_ns);
  }
  row->set_omitted_waiters(order.size() - shown);
  return absl::OkStatus();
}

absl::Status StoreRow(const QueryRun& run, const Entry& entry, size_t waiters, QueryFrame* frame,
                      v1::TagsResponse::Row* row) {
  const auto& [key, group] = entry;
  if (const HostRecord* host = frame->hosts().Find(key.host); host != nullptr) {
    row->set_host_id(host->host_id);
    row->set_hostname(host->hostname);
  }
  row->set_device(frame->names()->Text(key.device));
  row->set_device_model(ModelOf(run, group.device));
  if (group.set.has_value()) {
    *row->mutable_set() = *group.set;
    row->mutable_set()->clear_set();
  }
  if (group.settings.has_value()) StoreSettings(*group.settings, row->mutable_settings());
  row->set_kind(static_cast<v1::TagKind>(key.kind));
  row->set_reserved(key.reserved);
  if (group.nr_tags_min.has_value()) row->set_nr_tags_min(*group.nr_tags_min);
  if (group.nr_tags_max.has_value()) row->set_nr_tags_max(*group.nr_tags_max);
  row->set_hctxs(static_cast<uint32_t>(group.hctxs.size()));
  group.metrics.Store(row->mutable_metrics());
  row->set_active_sum(group.active_sum);
  row->set_active_samples(group.active_samples);
  row->set_active_max(group.active_max);
  StoreHolders(run, key, group, *frame->names(), row);
  std::vector<std::pair<uint64_t, int>> sources;
  for (const auto& [source, waits] : group.sources) sources.emplace_back(waits, source);
  std::sort(sources.begin(), sources.end(), std::greater<>());
  for (const auto& [waits, source] : sources) {
    v1::TagsResponse::SourceWaits* out = row->add_sources();
    out->set_source(static_cast<v1::TagWaitSource>(source));
    out->set_waits(waits);
  }
  return StoreWaiters(run, group, waiters, frame->names(), row);
}

// Sums over hosts by the texts that tell hardware apart.
class Hardware {
 public:
  void Add(const std::string& driver, const std::string& model, const Entry& entry) {
    Sum& sum = sums_[{driver, model}];
    sum.hosts.insert(entry.first.host);
    sum.disks.insert({entry.first.host, entry.first.device});
    sum.metrics.Merge(entry.second.metrics);
  }
  // Returns how many were left out.
  uint64_t Store(size_t limit, google::protobuf::RepeatedPtrField<v1::TagsResponse::Starved>* out) {
    std::vector<const std::pair<const Name, Sum>*> order;
    for (const auto& entry : sums_) order.push_back(&entry);
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
      return std::tie(b->second.metrics.wait_ns, b->second.metrics.waits, a->first) <
             std::tie(a->second.metrics.wait_ns, a->second.metrics.waits, b->first);
    });
    const size_t shown = std::min(limit, order.size());
    for (size_t i = 0; i < shown; ++i) {
      v1::TagsResponse::Starved* starved = out->Add();
      starved->set_driver(order[i]->first.first);
      starved->set_model(order[i]->first.second);
      starved->set_hosts(static_cast<uint32_t>(order[i]->second.hosts.size()));
      starved->set_disks(static_cast<uint32_t>(order[i]->second.disks.size()));
      order[i]->second.metrics.Store(starved->mutable_metrics());
    }
    return order.size() - shown;
  }

 private:
  using Name = std::pair<std::string, std::string>;
  struct Sum {
    std::set<HostNumber> hosts;
    std::set<std::pair<HostNumber, NameId>> disks;
    TagMetrics metrics;
  };
  std::map<Name, Sum> sums_;
};

void Warn(const TagTable& table, v1::Summary* summary) {
  if (table.hosts_inferring() == 0) return;
  summary->add_warnings(absl::StrCat(
      "On ", table.hosts_inferring(), table.hosts_inferring() == 1 ? " host" : " hosts",
      " tag waits are inferred from sleeping tasks: each sleep counts as one wait, and under load "
      "some are missed."));
}

absl::Status Check(const v1::TagsRequest& request) {
  if (request.devices_size() > kMaxDevices) {
    return absl::InvalidArgumentError(
        absl::StrCat("devices: ", request.devices_size(), " values; at most ", kMaxDevices));
  }
  if (request.waiters() > kMaxWaiters) {
    return absl::InvalidArgumentError(absl::StrCat(
        "waiters: ", request.waiters(), " is more than the ", kMaxWaiters, " that are allowed"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Tags(QueryRun& run, const v1::TagsRequest& request, v1::TagsResponse* response) {
  absl::StatusOr<size_t> limit = ResolveLimit(request.limit(), kDefaultLimit);
  if (!limit.ok()) return limit.status();
  if (absl::Status s = Check(request); !s.ok()) return s;
  auto frame = QueryFrame::Make(run, request.selector(), request.range());
  if (!frame.ok()) return frame.status();
  absl::StatusOr<GroupResult> totals = ScanTotals(run, frame->get());
  if (!totals.ok()) return totals.status();

  ScanRange range;
  range.start_unix_ns = (*frame)->range().start_unix_ns;
  range.end_unix_ns = (*frame)->range().end_unix_ns;
  TagTable table(
      absl::flat_hash_set<std::string>(request.devices().begin(), request.devices().end()),
      (*frame)->names(), run.context);
  absl::Status scanned =
      run.view->TagWaits((*frame)->hosts().numbers(), range,
                         [&table](const ScannedTagWaits& block) { return table.Add(block); });
  if (!scanned.ok()) return scanned;
  if (!run.context->KeepGoing()) return run.context->status();

  std::vector<const Entry*> order;
  Hardware controllers;
  Hardware models;
  for (const Entry& entry : table.groups()) {
    order.push_back(&entry);
    const TagGroup& group = entry.second;
    controllers.Add(group.set.has_value() ? group.set->driver() : "",
                    group.set.has_value() ? group.set->model() : "", entry);
    models.Add("", ModelOf(run, group.device), entry);
  }
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return std::tie(b->second.metrics.wait_ns, b->second.metrics.waits, a->first) <
           std::tie(a->second.metrics.wait_ns, a->second.metrics.waits, b->first);
  });
  const size_t shown = std::min(*limit, order.size());
  const uint32_t waiters = request.waiters() == 0 ? kDefaultWaiters : request.waiters();
  for (size_t i = 0; i < shown; ++i) {
    if (!run.context->KeepGoing()) return run.context->status();
    absl::Status s = StoreRow(run, *order[i], waiters, frame->get(), response->add_rows());
    if (!s.ok()) return s;
  }
  TagMetrics omitted;
  for (size_t i = shown; i < order.size(); ++i) omitted.Merge(order[i]->second.metrics);
  response->set_omitted_rows(order.size() - shown);
  omitted.Store(response->mutable_omitted());
  response->set_omitted_controllers(controllers.Store(*limit, response->mutable_controllers()));
  response->set_omitted_disk_models(models.Store(*limit, response->mutable_disk_models()));
  response->set_hosts_reporting(static_cast<uint32_t>(table.hosts_reporting()));
  response->set_hosts_inferring(static_cast<uint32_t>(table.hosts_inferring()));
  if (table.open_waits().has_value()) response->set_open_waits(*table.open_waits());
  // A host may have waited and had no IO that ended.
  totals->facts.hosts_with_data =
      std::max(totals->facts.hosts_with_data, static_cast<uint32_t>(table.hosts_reporting()));
  absl::Status summarized =
      (*frame)->Summarize(totals->facts, totals->totals, response->mutable_summary());
  if (summarized.ok()) Warn(table, response->mutable_summary());
  return summarized;
}

}  // namespace fleetblame::aggregator
