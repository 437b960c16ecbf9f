// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/replay/codec.h"

#include <limits>

#include "common/tag_waits.h"

namespace fleetblame::agent {
namespace {

namespace rec = ::fleetblame::recording::v1;

absl::Status Impossible(const char* what) {
  return absl::DataLossError(std::string("recording holds an impossible ") + what);
}

void EncodeHistogram(const SparseHistogram& h, rec::Histogram* message) {
  for (const auto& [bucket, count] : h.entries()) {
    message->add_buckets(bucket);
    message->add_counts(count);
  }
}

absl::Status DecodeHistogram(const rec::Histogram& message, SparseHistogram* h) {
  if (message.buckets_size() != message.counts_size()) return Impossible("histogram");
  int64_t previous = -1;
  for (int i = 0; i < message.buckets_size(); ++i) {
    uint32_t bucket = message.buckets(i);
    if (bucket >= kHistogramBuckets || bucket <= previous || message.counts(i) == 0) {
      return Impossible("histogram");
    }
    h->Add(static_cast<int>(bucket), message.counts(i));
    previous = bucket;
  }
  return absl::OkStatus();
}

absl::Status DecodeEnums(uint32_t operation, uint32_t confidence, uint32_t reason,
                         Operation* operation_out, Confidence* confidence_out,
                         uint8_t* reason_out) {
  if (operation > static_cast<uint32_t>(Operation::kOther)) return Impossible("operation");
  if (confidence > static_cast<uint32_t>(Confidence::kEstimated)) return Impossible("confidence");
  if (reason > std::numeric_limits<uint8_t>::max()) return Impossible("writeback reason");
  *operation_out = static_cast<Operation>(operation);
  *confidence_out = static_cast<Confidence>(confidence);
  *reason_out = static_cast<uint8_t>(reason);
  return absl::OkStatus();
}

void EncodeRow(const Row& row, rec::Row* m) {
  const RowKey& k = row.key;
  m->set_dirtier_stack(k.dirtier_stack);
  m->set_issuer_stack(k.issuer_stack);
  m->set_dirtier_actor(k.dirtier_actor);
  m->set_issuer_actor(k.issuer_actor);
  m->set_major(k.device.major);
  m->set_minor(k.device.minor);
  m->set_partition(k.partition);
  m->set_top_major(k.top.major);
  m->set_top_minor(k.top.minor);
  m->set_file(k.file);
  m->set_operation(static_cast<uint32_t>(k.operation));
  m->set_confidence(static_cast<uint32_t>(k.confidence));
  m->set_reason(k.reason);
  const RowValues& v = row.values;
  m->set_ios(v.ios);
  m->set_bytes(v.bytes);
  m->set_wait_ns(v.wait_ns);
  m->set_io_ns(v.io_ns);
  m->set_errors(v.errors);
  m->set_requeues(v.requeues);
  EncodeHistogram(v.wait, m->mutable_wait());
  EncodeHistogram(v.io, m->mutable_io());
}

absl::Status DecodeRow(const rec::Row& m, Row* row) {
  RowKey& k = row->key;
  absl::Status status = DecodeEnums(m.operation(), m.confidence(), m.reason(), &k.operation,
                                    &k.confidence, &k.reason);
  k.dirtier_stack = m.dirtier_stack();
  k.issuer_stack = m.issuer_stack();
  k.dirtier_actor = m.dirtier_actor();
  k.issuer_actor = m.issuer_actor();
  k.device = {m.major(), m.minor()};
  k.partition = static_cast<uint8_t>(m.partition());
  k.top = {m.top_major(), m.top_minor()};
  k.file = m.file();
  RowValues& v = row->values;
  v.ios = m.ios();
  v.bytes = m.bytes();
  v.wait_ns = m.wait_ns();
  v.io_ns = m.io_ns();
  v.errors = m.errors();
  v.requeues = m.requeues();
  status.Update(DecodeHistogram(m.wait(), &v.wait));
  status.Update(DecodeHistogram(m.io(), &v.io));
  return status;
}

void EncodeDefinitions(const Snapshot& snapshot, rec::Snapshot* message) {
  for (const StackDefinition& s : snapshot.stacks) {
    rec::Stack* m = message->add_stacks();
    m->set_id(s.id);
    m->mutable_addresses()->Add(s.addresses.begin(), s.addresses.end());
  }
  for (const ActorDefinition& a : snapshot.actors) {
    rec::Actor* m = message->add_actors();
    m->set_id(a.id);
    m->set_comm(a.comm);
    m->set_cgroup_id(a.cgroup_id);
    m->set_cgroup_path(a.cgroup_path);
    m->set_kernel_thread(a.kernel_thread);
  }
  for (const FileDefinition& f : snapshot.files) {
    rec::File* m = message->add_files();
    m->set_id(f.id);
    m->set_fs_major(f.filesystem.major);
    m->set_fs_minor(f.filesystem.minor);
    m->set_inode(f.inode);
    m->set_generation(f.generation);
    m->set_path(f.path);
  }
}

void DecodeDefinitions(const rec::Snapshot& message, Snapshot* snapshot) {
  for (const rec::Stack& m : message.stacks()) {
    snapshot->stacks.push_back({m.id(), {m.addresses().begin(), m.addresses().end()}});
  }
  for (const rec::Actor& m : message.actors()) {
    snapshot->actors.push_back(
        {m.id(), m.comm(), m.cgroup_id(), m.cgroup_path(), m.kernel_thread()});
  }
  for (const rec::File& m : message.files()) {
    snapshot->files.push_back(
        {m.id(), {m.fs_major(), m.fs_minor()}, m.inode(), m.generation(), m.path()});
  }
}

void EncodeBooks(const Books& b, rec::Books* m) {
  m->set_major(b.device.major);
  m->set_minor(b.device.minor);
  m->set_direction(static_cast<uint32_t>(b.direction));
  m->set_recorded_bytes(b.recorded_bytes);
  m->set_lost_bytes(b.lost_bytes);
  m->set_kernel_bytes(b.kernel_bytes);
  m->set_recorded_ios(b.recorded_ios);
  m->set_kernel_ios(b.kernel_ios);
}

absl::Status DecodeBooks(const rec::Books& m, Books* b) {
  if (m.direction() > static_cast<uint32_t>(Operation::kOther)) return Impossible("direction");
  b->device = {m.major(), m.minor()};
  b->direction = static_cast<Operation>(m.direction());
  b->recorded_bytes = m.recorded_bytes();
  b->lost_bytes = m.lost_bytes();
  b->kernel_bytes = m.kernel_bytes();
  b->recorded_ios = m.recorded_ios();
  b->kernel_ios = m.kernel_ios();
  return absl::OkStatus();
}

}  // namespace

rec::Info EncodeInfo(const TracerInfo& info) {
  rec::Info message;
  message.set_kind(info.kind);
  message.set_kernel_release(info.kernel_release);
  message.set_vmlinux_build_id(info.vmlinux_build_id);
  for (const std::string& r : info.reasons) message.add_reasons(r);
  for (const std::string& l : info.limitations) message.add_limitations(l);
  return message;
}

TracerInfo DecodeInfo(const rec::Info& message) {
  TracerInfo info;
  info.kind = message.kind();
  info.kernel_release = message.kernel_release();
  info.vmlinux_build_id = message.vmlinux_build_id();
  info.reasons.assign(message.reasons().begin(), message.reasons().end());
  info.limitations.assign(message.limitations().begin(), message.limitations().end());
  return info;
}

rec::Snapshot EncodeSnapshot(const Snapshot& snapshot) {
  rec::Snapshot message;
  message.set_start_boot_ns(snapshot.start_boot_ns);
  message.set_end_boot_ns(snapshot.end_boot_ns);
  for (const Row& row : snapshot.rows) EncodeRow(row, message.add_rows());
  EncodeDefinitions(snapshot, &message);
  for (const Books& books : snapshot.books) EncodeBooks(books, message.add_books());
  for (const auto& [name, delta] : snapshot.losses) {
    rec::Loss* loss = message.add_losses();
    loss->set_name(name);
    loss->set_delta(delta);
  }
  if (snapshot.tag_waits.has_value()) {
    message.set_tag_waits(snapshot.tag_waits->SerializeAsString());
  }
  return message;
}

absl::StatusOr<Snapshot> DecodeSnapshot(const rec::Snapshot& message) {
  Snapshot snapshot;
  snapshot.start_boot_ns = message.start_boot_ns();
  snapshot.end_boot_ns = message.end_boot_ns();
  if (snapshot.end_boot_ns < snapshot.start_boot_ns) return Impossible("window");
  absl::Status status;
  snapshot.rows.resize(static_cast<size_t>(message.rows_size()));
  for (int i = 0; i < message.rows_size(); ++i) {
    status.Update(DecodeRow(message.rows(i), &snapshot.rows[static_cast<size_t>(i)]));
  }
  DecodeDefinitions(message, &snapshot);
  snapshot.books.resize(static_cast<size_t>(message.books_size()));
  for (int i = 0; i < message.books_size(); ++i) {
    status.Update(DecodeBooks(message.books(i), &snapshot.books[static_cast<size_t>(i)]));
  }
  for (const rec::Loss& loss : message.losses()) snapshot.losses[loss.name()] += loss.delta();
  if (!message.tag_waits().empty()) {
    v1::TagWaits& waits = snapshot.tag_waits.emplace();
    if (!waits.ParseFromString(message.tag_waits())) return Impossible("list of tag waits");
    // The kernel's table holds more than one window of the wire.
    if (!CheckTagWaits(
             waits,
             {.max_rows = 65536, .max_holders = 65536, .max_disks = 65536, .max_sets = 65536})
             .ok()) {
      return Impossible("list of tag waits");
    }
  }
  if (!status.ok()) return status;
  return snapshot;
}

void EncodeTraceRecord(const TraceRecord& r, rec::TraceRecord* m) {
  m->set_complete_boot_ns(r.complete_boot_ns);
  m->set_major(r.device.major);
  m->set_minor(r.device.minor);
  m->set_sector(r.sector);
  m->set_bytes(r.bytes);
  m->set_operation(static_cast<uint32_t>(r.operation));
  m->set_rwbs(r.rwbs);
  m->set_wait_ns(r.wait_ns);
  m->set_io_ns(r.io_ns);
  m->set_error(r.error);
  m->set_confidence(static_cast<uint32_t>(r.confidence));
  m->set_reason(r.reason);
  m->set_dirtier_stack(r.dirtier_stack);
  m->set_issuer_stack(r.issuer_stack);
  m->set_dirtier_actor(r.dirtier_actor);
  m->set_issuer_actor(r.issuer_actor);
  m->set_dirtier_tid(r.dirtier_tid);
  m->set_issuer_tid(r.issuer_tid);
  m->set_file(r.file);
  m->set_requeues(r.requeues);
  m->set_merged_bios(r.merged_bios);
  m->set_other_bytes(r.other_bytes);
}

absl::StatusOr<TraceRecord> DecodeTraceRecord(const rec::TraceRecord& m) {
  TraceRecord r;
  absl::Status status = DecodeEnums(m.operation(), m.confidence(), m.reason(), &r.operation,
                                    &r.confidence, &r.reason);
  if (!status.ok()) return status;
  r.complete_boot_ns = m.complete_boot_ns();
  r.device = {m.major(), m.minor()};
  r.sector = m.sector();
  r.bytes = m.bytes();
  r.rwbs = m.rwbs();
  r.wait_ns = m.wait_ns();
  r.io_ns = m.io_ns();
  r.error = m.error();
  r.dirtier_stack = m.dirtier_stack();
  r.issuer_stack = m.issuer_stack();
  r.dirtier_actor = m.dirtier_actor();
  r.issuer_actor = m.issuer_actor();
  r.dirtier_tid = m.dirtier_tid();
  r.issuer_tid = m.issuer_tid();
  r.file = m.file();
  r.requeues = m.requeues();
  r.merged_bios = m.merged_bios();
  r.other_bytes = m.other_bytes();
  return r;
}

}  // namespace fleetblame::agent
