// SPDX-License-Identifier: Apache-2.0
#include "node-agent/compact/compactor.h"

#include <algorithm>
#include <utility>

#include "common/tag_waits.h"

namespace fleetblame::agent {
namespace {

v1::Operation ToWire(Operation operation) { return static_cast<v1::Operation>(operation); }
v1::Confidence ToWire(Confidence confidence) { return static_cast<v1::Confidence>(confidence); }

void AddLoss(v1::Batch& head, const std::string& name, uint64_t delta) {
  if (delta == 0) return;
  v1::LossCounter* loss = head.add_losses();
  loss->set_name(name);
  loss->set_delta(delta);
}

}  // namespace

Compactor::Compactor(LocalNames* names, Dictionary* dictionary, const CompactorOptions& options)
    : names_(names), dictionary_(dictionary), options_(options) {}

void Compactor::Add(const Snapshot& snapshot) {
  if (!started_) start_boot_ns_ = snapshot.start_boot_ns;
  started_ = true;
  end_boot_ns_ = snapshot.end_boot_ns;
  for (const Row& row : snapshot.rows) AddRow(row);
  for (const Books& books : snapshot.books) AddBooks(books);
  if (snapshot.tag_waits.has_value()) AddTagWaits(*snapshot.tag_waits);
  for (const auto& [name, delta] : snapshot.losses) losses_[name] += delta;
  if (rows_.size() > 2 * options_.max_rows) rows_folded_ += rows_.Limit(options_.max_rows);
}

uint32_t Compactor::WindowFileIndex(FileId id) {
  if (id == kNoFile) return 0;
  std::shared_ptr<const v1::File> file = names_->FindFile(id);
  if (file == nullptr) return 0;
  auto [it, added] = window_file_index_.try_emplace(file.get(), 0);
  if (added) {
    window_files_.push_back({std::move(file), 0});
    it->second = static_cast<uint32_t>(window_files_.size());
  }
  return it->second;
}

void Compactor::AddRow(const Row& row) {
  const RowKey& key = row.key;
  BlockRow out;
  out.dirtier_intent = names_->Intent(key.dirtier_stack, key.reason);
  out.issuer_intent = names_->Intent(key.issuer_stack, key.reason);
  out.dirtier_actor = names_->Actor(key.dirtier_actor);
  out.issuer_actor = names_->Actor(key.issuer_actor);
  out.device = names_->Device(key.device, key.partition, key.top);
  out.file = WindowFileIndex(key.file);
  if (out.file != 0) window_files_[out.file - 1].bytes += row.values.bytes;
  out.operation = ToWire(key.operation);
  out.confidence = ToWire(key.confidence);
  out.ios = row.values.ios;
  out.bytes = row.values.bytes;
  out.wait_ns = row.values.wait_ns;
  out.io_ns = row.values.io_ns;
  out.errors = row.values.errors;
  out.requeues = row.values.requeues;
  out.wait = row.values.wait;
  out.io = row.values.io;
  rows_.Add(std::move(out));
}

void Compactor::AddBooks(const Books& books) {
  Books& sum = books_[{books.device, books.direction}];
  sum.recorded_bytes += books.recorded_bytes;
  sum.lost_bytes += books.lost_bytes;
  sum.kernel_bytes += books.kernel_bytes;
  sum.recorded_ios += books.recorded_ios;
  sum.kernel_ios += books.kernel_ios;
}

void Compactor::AddTagWaits(v1::TagWaits waits) {
  auto device = [this](uint32_t packed) {
    return packed == 0 ? 0 : names_->Device(UnpackDevice(packed));
  };
  for (v1::TagWaitRow& row : *waits.mutable_rows()) {
    row.set_device(device(row.device()));
    row.set_intent(names_->Intent(row.intent(), /*reason=*/0));
    row.set_actor(names_->Actor(row.actor()));
  }
  for (v1::TagHolder& holder : *waits.mutable_holders()) {
    holder.set_waiter_device(device(holder.waiter_device()));
    holder.set_holder_device(device(holder.holder_device()));
  }
  for (v1::TagDisk& disk : *waits.mutable_disks()) disk.set_device(device(disk.device()));
  // Several stacks may be one intent.
  MergeTagWaits(waits, &tag_waits_);
  const TagWaitLosses lost = LimitTagWaits({}, &tag_waits_);
  losses_["tagwait_rows_folded"] += lost.folded;
  losses_["tagwait_rows_dropped"] += lost.dropped;
}

// Gives dictionary numbers to the files with most bytes and takes the file off all other rows.
// Returns how many files went.
uint64_t Compactor::FoldFiles() {
  std::vector<uint32_t> order(window_files_.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return window_files_[a].bytes > window_files_[b].bytes;
  });
  std::vector<uint32_t> numbers(window_files_.size() + 1, 0);
  for (size_t i = 0; i < std::min(order.size(), options_.max_files); ++i) {
    numbers[order[i] + 1] = names_->File(*window_files_[order[i]].file);
  }
  std::vector<BlockRow> rows = rows_.Take();
  for (BlockRow& row : rows) {
    row.file = numbers[row.file];
    rows_.Add(std::move(row));
  }
  return order.size() > options_.max_files ? order.size() - options_.max_files : 0;
}

std::vector<v1::Batch> Compactor::Finish(const Extras& extras) {
  v1::Batch head;
  v1::Window* window = head.mutable_window();
  window->set_start_boot_ns(start_boot_ns_);
  // A window without length would be refused.
  window->set_end_boot_ns(std::max(end_boot_ns_, start_boot_ns_ + 1));
  window->set_realtime_offset_ns(extras.realtime_offset_ns);
  window->set_boot_id(options_.boot_id);

  const uint64_t files_folded = FoldFiles();
  rows_folded_ += rows_.Limit(options_.max_rows);
  const std::vector<BlockRow> rows = rows_.Take();
  total_rows_ += rows.size();

  for (const auto& [key, books] : books_) {
    if (books.recorded_bytes == 0 && books.lost_bytes == 0 && books.kernel_bytes == 0 &&
        books.recorded_ios == 0 && books.kernel_ios == 0) {
      continue;
    }
    v1::CoverageSample* sample = head.add_coverage();
    sample->set_device(names_->Device(key.first));
    sample->set_direction(ToWire(key.second));
    sample->set_recorded_bytes(books.recorded_bytes);
    sample->set_lost_bytes(books.lost_bytes);
    sample->set_kernel_bytes(books.kernel_bytes);
    sample->set_recorded_ios(books.recorded_ios);
    sample->set_kernel_ios(books.kernel_ios);
  }
  for (const auto& [name, delta] : extras.losses) losses_[name] += delta;
  losses_["rows_folded"] += rows_folded_;
  losses_["files_folded"] += files_folded;
  losses_["unknown_ids"] += names_->unknown_ids() - unknown_ids_before_;
  for (const auto& [name, delta] : losses_) AddLoss(head, name, delta);
  for (const v1::Gap& gap : extras.gaps) *head.add_gaps() = gap;
  if (!IsEmpty(tag_waits_)) *head.mutable_tag_waits() = std::move(tag_waits_);
  // Every number above is from this dictionary; the caller begins a new one between windows only.
  head.set_dictionary_id(dictionary_->current_id());
  std::vector<v1::Batch> batches = CutBatches(head, rows, options_.cut);

  started_ = false;
  window_files_.clear();
  window_file_index_.clear();
  books_.clear();
  losses_.clear();
  tag_waits_.Clear();
  rows_folded_ = 0;
  unknown_ids_before_ = names_->unknown_ids();
  return batches;
}

}  // namespace fleetblame::agent
