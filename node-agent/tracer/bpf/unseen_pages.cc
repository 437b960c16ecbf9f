// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/unseen_pages.h"

#include <utility>

#include "node-agent/tracer/bpf/proportion.h"

namespace fleetblame::agent {

Row ToLastDirtier(Row row) {
  const bool known = row.key.dirtier_actor != kNoActor;
  row.key.confidence = known ? Confidence::kInode : Confidence::kLost;
  return row;
}

void UnseenPages::AddSample(const Row& row, uint64_t stands_for) {
  // Files that have no number are many: what one says is nothing to another.
  if (row.key.file == kNoFile || stands_for <= 1) return;
  samples_[{row.key.device, row.key.file}][{row.key.dirtier_actor, row.key.dirtier_stack}] +=
      row.values.bytes * (stands_for - 1);
}

void UnseenPages::AddUnseen(Row row, uint64_t stands_for) {
  unseen_.push_back({std::move(row), stands_for, 0});
}

void UnseenPages::AddSkipped(Sample charged) {
  unseen_.push_back({std::move(charged.row), charged.groups_per_sample, charged.stands_for});
}

// Of whose file nothing was looked at.
Row UnseenPages::WithoutSample(Unseen unseen, std::map<std::string, uint64_t>* losses) {
  Row row = ToLastDirtier(std::move(unseen.row));
  if (unseen.ios_per_sample == 0 || row.key.confidence == Confidence::kLost) return row;
  row.key.confidence = Confidence::kEstimated;
  (*losses)["ios_estimated"] += row.values.ios;
  (*losses)["ios_estimated_variance"] += row.values.ios * unseen.ios_per_sample;
  return row;
}

std::vector<Row> UnseenPages::Take(std::map<std::string, uint64_t>* losses) {
  std::vector<Row> rows;
  for (Unseen& unseen : unseen_) {
    const auto samples = samples_.find({unseen.row.key.device, unseen.row.key.file});
    if (samples == samples_.end()) {
      rows.push_back(WithoutSample(std::move(unseen), losses));
      continue;
    }
    Wide weights = 0;
    for (const auto& [dirtier, weight] : samples->second) weights += weight;
    const RowValues& whole = unseen.row.values;
    Dealer deal_bytes(whole.bytes, weights), deal_ios(whole.ios, weights);
    Dealer deal_wait(whole.wait_ns, whole.ios), deal_io(whole.io_ns, whole.ios);
    Dealer deal_errors(whole.errors, weights), deal_requeues(whole.requeues, weights);
    for (const auto& [dirtier, weight] : samples->second) {
      Row row{.key = unseen.row.key, .values = {}};
      row.key.confidence = Confidence::kEstimated;
      row.key.dirtier_actor = dirtier.first;
      row.key.dirtier_stack = dirtier.second;
      row.values.bytes = deal_bytes.Next(weight);
      row.values.ios = deal_ios.Next(weight);
      row.values.errors = deal_errors.Next(weight);
      row.values.requeues = deal_requeues.Next(weight);
      if (row.values.bytes == 0 && row.values.ios == 0) continue;
      row.values.wait_ns = deal_wait.Next(row.values.ios);
      row.values.io_ns = deal_io.Next(row.values.ios);
      row.values.wait = Scaled(whole.wait, row.values.ios);
      row.values.io = Scaled(whole.io, row.values.ios);
      (*losses)["ios_estimated"] += row.values.ios;
      // The file's part of the IOs and the dirtier's part of the file are drawn apart.
      (*losses)["ios_estimated_variance"] +=
          row.values.ios * (unseen.stands_for + unseen.ios_per_sample);
      rows.push_back(std::move(row));
    }
  }
  samples_.clear();
  unseen_.clear();
  return rows;
}

}  // namespace fleetblame::agent
