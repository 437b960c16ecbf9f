// SPDX-License-Identifier: Apache-2.0
#include "node-agent/compact/coarsen.h"

#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/tag_waits.h"
#include "node-agent/compact/row_codec.h"
#include "node-agent/compact/row_merger.h"

namespace fleetblame::agent {
namespace {

// All batches of one window, or of two that become one.
using Group = std::vector<v1::Batch>;

bool SameWindow(const v1::Batch& a, const v1::Batch& b) {
  return a.window().start_boot_ns() == b.window().start_boot_ns() &&
         a.window().end_boot_ns() == b.window().end_boot_ns() &&
         a.window().boot_id() == b.window().boot_id() && a.dictionary_id() == b.dictionary_id();
}

bool CanFollow(const Group& a, const Group& b) {
  const v1::Window& first = a.back().window();
  const v1::Window& second = b.front().window();
  return first.end_boot_ns() == second.start_boot_ns() && first.boot_id() == second.boot_id() &&
         a.back().dictionary_id() == b.front().dictionary_id();
}

std::vector<Group> GroupByWindow(std::vector<v1::Batch> batches) {
  std::vector<Group> groups;
  for (v1::Batch& batch : batches) {
    if (groups.empty() || !SameWindow(groups.back().front(), batch)) groups.emplace_back();
    groups.back().push_back(std::move(batch));
  }
  return groups;
}

// Everything but the rows of several batches in one.
v1::Batch MergeHeads(const Group& group) {
  v1::Batch head;
  head.set_dictionary_id(group.front().dictionary_id());
  v1::Window* window = head.mutable_window();
  // The offset at the end of the window is the one that counts.
  *window = group.back().window();
  window->set_start_boot_ns(group.front().window().start_boot_ns());
  window->set_coarsened(true);
  std::map<std::pair<uint32_t, int>, v1::CoverageSample> coverage;
  std::map<std::string, uint64_t> losses;
  for (const v1::Batch& batch : group) {
    for (const v1::CoverageSample& sample : batch.coverage()) {
      v1::CoverageSample& sum = coverage[{sample.device(), sample.direction()}];
      sum.set_device(sample.device());
      sum.set_direction(sample.direction());
      sum.set_recorded_bytes(sum.recorded_bytes() + sample.recorded_bytes());
      sum.set_lost_bytes(sum.lost_bytes() + sample.lost_bytes());
      sum.set_kernel_bytes(sum.kernel_bytes() + sample.kernel_bytes());
      sum.set_recorded_ios(sum.recorded_ios() + sample.recorded_ios());
      sum.set_kernel_ios(sum.kernel_ios() + sample.kernel_ios());
    }
    for (const v1::LossCounter& loss : batch.losses()) losses[loss.name()] += loss.delta();
    for (const v1::Gap& gap : batch.gaps()) *head.add_gaps() = gap;
    if (batch.has_tag_waits()) MergeTagWaits(batch.tag_waits(), head.mutable_tag_waits());
    if (batch.window().has_stack_sampling()) {
      window->set_stack_sampling(batch.window().stack_sampling());
    }
  }
  for (auto& [key, sample] : coverage) *head.add_coverage() = std::move(sample);
  if (head.has_tag_waits()) {
    const TagWaitLosses lost = LimitTagWaits({}, head.mutable_tag_waits());
    if (lost.folded != 0) losses["tagwait_rows_folded"] += lost.folded;
    if (lost.dropped != 0) losses["tagwait_rows_dropped"] += lost.dropped;
  }
  for (const auto& [name, delta] : losses) {
    v1::LossCounter* loss = head.add_losses();
    loss->set_name(name);
    loss->set_delta(delta);
  }
  return head;
}

absl::StatusOr<std::vector<v1::Batch>> MergeGroup(const Group& group, const CutLimits& limits) {
  RowMerger merger;
  for (const v1::Batch& batch : group) {
    if (batch.row_count() == 0) continue;
    auto block = DecodeRows(batch);
    if (!block.ok()) return block.status();
    RowBlockReader reader(*block);
    for (BlockRow row; reader.Next(&row);) merger.Add(row);
  }
  return CutBatches(MergeHeads(group), merger.Take(), limits);
}

}  // namespace

std::vector<v1::Batch> CoarsenBatches(std::vector<v1::Batch> batches, const CutLimits& limits) {
  const std::vector<Group> groups = GroupByWindow(batches);
  std::vector<v1::Batch> result;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i + 1 < groups.size() && CanFollow(groups[i], groups[i + 1])) {
      Group pair = groups[i];
      pair.insert(pair.end(), groups[i + 1].begin(), groups[i + 1].end());
      auto merged = MergeGroup(pair, limits);
      if (!merged.ok()) return batches;
      if (merged->size() < pair.size()) {
        result.insert(result.end(), merged->begin(), merged->end());
        ++i;
        continue;
      }
    }
    result.insert(result.end(), groups[i].begin(), groups[i].end());
  }
  return result;
}

}  // namespace fleetblame::agent
