// SPDX-License-Identifier: Apache-2.0
//
// Query.Coverage: the books of each host, device and direction, worst first. The summary's totals
// and confidences come from the rows, as everywhere.
#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include "aggregator/query/group_scan.h"
#include "aggregator/query/handlers.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kDefaultLimit = 100;

// Bytes that nobody was charged with: unexplained ones either way, and those counted as lost.
uint64_t Badness(const v1::CoverageSample& s) {
  uint64_t explained = s.recorded_bytes() + s.lost_bytes();
  uint64_t off =
      explained > s.kernel_bytes() ? explained - s.kernel_bytes() : s.kernel_bytes() - explained;
  return off + s.lost_bytes();
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
  for (const StoredCoverage& c : *books) {
    if (static_cast<size_t>(response->rows_size()) == *limit) break;
    v1::CoverageResponse::Row* row = response->add_rows();
    if (const HostRecord* host = (*frame)->hosts().Find(c.host); host != nullptr) {
      row->set_host_id(host->host_id);
      row->set_hostname(host->hostname);
    }
    row->set_device((*frame)->names()->Text((*frame)->names()->DeviceName(c.device)));
    row->set_direction(c.sample.direction());
    row->set_recorded_bytes(c.sample.recorded_bytes());
    row->set_lost_bytes(c.sample.lost_bytes());
    row->set_kernel_bytes(c.sample.kernel_bytes());
    row->set_recorded_ios(c.sample.recorded_ios());
    row->set_kernel_ios(c.sample.kernel_ios());
  }
  response->set_omitted(books->size() - static_cast<size_t>(response->rows_size()));
  return (*frame)->Summarize(result->facts, result->totals, response->mutable_summary());
}

}  // namespace fleetblame::aggregator
