// SPDX-License-Identifier: Apache-2.0
//
// Query.Coverage: the books of each host, device and direction, worst first. The summary's totals
// and confidences come from the rows, as everywhere.
#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "aggregator/query/dimension_text.h"
#include "aggregator/query/group_scan.h"
#include "aggregator/query/handlers.h"
#include "common/saturating.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kDefaultLimit = 100;

// Bytes that nobody was charged with: unexplained ones either way, and those counted as lost.
uint64_t Badness(const v1::CoverageSample& s) {
  const uint64_t explained = SaturatingAdd(s.recorded_bytes(), s.lost_bytes());
  uint64_t off =
      explained > s.kernel_bytes() ? explained - s.kernel_bytes() : s.kernel_bytes() - explained;
  return SaturatingAdd(off, s.lost_bytes());
}

// In which of the kernel's directions an operation is counted; unspecified: in none.
v1::Operation DirectionOf(v1::Operation operation) {
  switch (operation) {
    case v1::OPERATION_READ:
    case v1::OPERATION_DISCARD:
      return operation;
    case v1::OPERATION_WRITE:
    case v1::OPERATION_WRITE_ZEROES:
    case v1::OPERATION_SECURE_ERASE:
      return v1::OPERATION_WRITE;
    default:
      return v1::OPERATION_UNSPECIFIED;
  }
}

// Host, device and direction of a row of the answer.
using BookKey = std::tuple<HostNumber, NameId, v1::Operation>;

// How well the bytes of each row are blamed: from the rows of its host, on whatever layer.
absl::Status FillConfidences(QueryRun& run, QueryFrame* frame, const ScanPlan& plan,
                             const std::map<BookKey, v1::CoverageResponse::Row*>& rows) {
  if (rows.empty()) return absl::OkStatus();
  v1::Filter every_layer;
  every_layer.set_layer(v1::LAYER_ANY);
  auto filter = RowFilter::Compile(every_layer, v1::SIDE_DIRTIER, *run.view, frame->names());
  if (!filter.ok()) return filter.status();
  const Grouping grouping(
      {v1::DIMENSION_HOST, v1::DIMENSION_DEVICE, v1::DIMENSION_OPERATION, v1::DIMENSION_CONFIDENCE},
      v1::SIDE_DIRTIER);
  GroupQuery query;
  query.grouping = &grouping;
  query.filter = &*filter;
  query.plan.range = plan.range;
  for (const auto& [key, row] : rows) {
    const HostNumber host = std::get<0>(key);
    if (query.plan.only_hosts.empty() || query.plan.only_hosts.back() != host) {
      query.plan.only_hosts.push_back(host);
    }
  }
  query.histograms = false;
  query.limit = std::numeric_limits<size_t>::max();
  absl::StatusOr<GroupResult> result = RunGroups(frame->env(), frame->names(), query);
  if (!result.ok()) return result.status();
  for (const RankedGroup& group : result->ranking.top) {
    const auto& parts = group.key.parts;
    auto at = rows.find({parts[0], parts[1], DirectionOf(static_cast<v1::Operation>(parts[2]))});
    if (at == rows.end()) continue;
    const std::string name = ConfidenceText(static_cast<v1::Confidence>(parts[3]));
    Grow(&(*at->second->mutable_bytes_by_confidence())[name.empty() ? "unknown" : name],
         group.group.total.sums.bytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Coverage(QueryRun& run, const v1::CoverageRequest& request,
                      v1::CoverageResponse* response) {
  absl::StatusOr<size_t> limit = ResolveLimit(request.limit(), kDefaultLimit);
  if (!limit.ok()) return limit.status();
  auto frame = QueryFrame::Make(run, request.selector(), request.range());
  if (!frame.ok()) return frame.status();

  const Grouping grouping({}, v1::SIDE_DIRTIER);
  const RowFilter filter;
  GroupQuery query;
  query.grouping = &grouping;
  query.filter = &filter;
  query.plan = PlanScan(grouping, filter, (*frame)->hosts(), (*frame)->range(),
                        run.options->max_host_blocks);
  query.histograms = false;
  absl::StatusOr<GroupResult> result = RunGroups((*frame)->env(), (*frame)->names(), query);
  if (!result.ok()) return result.status();

  auto books = run.view->Coverage((*frame)->hosts().numbers(), query.plan.range);
  if (!books.ok()) return books.status();
  std::sort(books->begin(), books->end(), [](const StoredCoverage& a, const StoredCoverage& b) {
    auto rank = [](const StoredCoverage& c) {
      return std::make_tuple(std::numeric_limits<uint64_t>::max() - Badness(c.sample),
                             std::numeric_limits<uint64_t>::max() - c.sample.kernel_bytes(), c.host,
                             c.device, static_cast<int>(c.sample.direction()));
    };
    return rank(a) < rank(b);
  });
  std::map<BookKey, v1::CoverageResponse::Row*> by_key;
  for (const StoredCoverage& c : *books) {
    if (static_cast<size_t>(response->rows_size()) == *limit) break;
    v1::CoverageResponse::Row* row = response->add_rows();
    if (const HostRecord* host = (*frame)->hosts().Find(c.host); host != nullptr) {
      row->set_host_id(host->host_id);
      row->set_hostname(host->hostname);
    }
    row->set_device((*frame)->names()->Text((*frame)->names()->DeviceName(c.device)));
    if (auto device = (*frame)->names()->Device(c.device); device != nullptr) {
      *row->mutable_device_info() = *device;
    }
    row->set_direction(c.sample.direction());
    row->set_recorded_bytes(c.sample.recorded_bytes());
    row->set_lost_bytes(c.sample.lost_bytes());
    row->set_kernel_bytes(c.sample.kernel_bytes());
    row->set_recorded_ios(c.sample.recorded_ios());
    row->set_kernel_ios(c.sample.kernel_ios());
    by_key[{c.host, (*frame)->names()->DeviceName(c.device), c.sample.direction()}] = row;
  }
  if (absl::Status s = FillConfidences(run, frame->get(), query.plan, by_key); !s.ok()) return s;
  response->set_omitted(books->size() - static_cast<size_t>(response->rows_size()));
  return (*frame)->Summarize(result->facts, result->totals, response->mutable_summary());
}

}  // namespace fleetblame::aggregator
