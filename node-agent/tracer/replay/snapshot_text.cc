// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/replay/snapshot_text.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fleetblame::agent {
namespace {

std::string Quoted(const std::string& text) {
  return absl::StrCat("\"", absl::CEscape(text), "\"");
}

std::string Device(DeviceNumber device) { return absl::StrCat(device.major, ":", device.minor); }

std::string Histogram(const SparseHistogram& histogram) {
  std::string text;
  for (const auto& [bucket, count] : histogram.entries()) {
    absl::StrAppend(&text, text.empty() ? "" : ",", bucket, "*", count);
  }
  return text;
}

void AppendRow(const Row& row, std::string* text) {
  const RowKey& k = row.key;
  const RowValues& v = row.values;
  absl::StrAppend(
      text, "row stacks=", k.dirtier_stack, "/", k.issuer_stack, " actors=", k.dirtier_actor, "/",
      k.issuer_actor, " device=", Device(k.device),
      k.partition == 0 ? "" : absl::StrCat("p", k.partition),
      k.top == DeviceNumber{} ? "" : absl::StrCat(" top=", Device(k.top)), " file=", k.file,
      " op=", static_cast<int>(k.operation), " confidence=", static_cast<int>(k.confidence),
      " reason=", static_cast<int>(k.reason), " ios=", v.ios, " bytes=", v.bytes,
      " wait_ns=", v.wait_ns, " io_ns=", v.io_ns, " errors=", v.errors, " requeues=", v.requeues);
  absl::StrAppend(text, " wait=", Histogram(v.wait), " io=", Histogram(v.io), "\n");
}

void AppendDefinitions(const Snapshot& snapshot, std::string* text) {
  for (const StackDefinition& s : snapshot.stacks) {
    absl::StrAppend(text, "stack ", s.id);
    for (uint64_t address : s.addresses) absl::StrAppendFormat(text, " %x", address);
    absl::StrAppend(text, "\n");
  }
  for (const ActorDefinition& a : snapshot.actors) {
    absl::StrAppend(text, "actor ", a.id, " comm=", Quoted(a.comm), " cgroup=", a.cgroup_id, " ",
                    Quoted(a.cgroup_path), " kernel_thread=", a.kernel_thread ? 1 : 0, "\n");
  }
  for (const FileDefinition& f : snapshot.files) {
    absl::StrAppend(text, "file ", f.id, " fs=", Device(f.filesystem), " inode=", f.inode, "/",
                    f.generation, " path=", Quoted(f.path), "\n");
  }
}

}  // namespace

std::string SnapshotText(const Snapshot& snapshot) {
  std::string text =
      absl::StrCat("window ", snapshot.start_boot_ns, "..", snapshot.end_boot_ns, "\n");
  AppendDefinitions(snapshot, &text);
  for (const Row& row : snapshot.rows) AppendRow(row, &text);
  for (const Books& b : snapshot.books) {
    absl::StrAppend(&text, "books device=", Device(b.device),
                    " direction=", static_cast<int>(b.direction),
                    " recorded_bytes=", b.recorded_bytes, " lost_bytes=", b.lost_bytes,
                    " kernel_bytes=", b.kernel_bytes, " recorded_ios=", b.recorded_ios,
                    " kernel_ios=", b.kernel_ios, "\n");
  }
  if (snapshot.tag_waits.has_value()) {
    for (const v1::TagWaitRow& row : snapshot.tag_waits->rows()) {
      absl::StrAppend(&text, "tag_wait device=", Device(UnpackDevice(row.device())), " ",
                      row.ShortDebugString(), "\n");
    }
    for (const v1::TagHolder& holder : snapshot.tag_waits->holders()) {
      absl::StrAppend(&text, "tag_holder waiter=", Device(UnpackDevice(holder.waiter_device())),
                      " holder=", Device(UnpackDevice(holder.holder_device())), " ",
                      holder.ShortDebugString(), "\n");
    }
  }
  for (const auto& [name, delta] : snapshot.losses) {
    absl::StrAppend(&text, "loss ", name, "=", delta, "\n");
  }
  return text;
}

std::string TraceRecordText(const TraceRecord& r) {
  std::string text =
      absl::StrCat("trace ", r.complete_boot_ns, " device=", Device(r.device), " sector=", r.sector,
                   " bytes=", r.bytes, " op=", static_cast<int>(r.operation), " rwbs=", r.rwbs,
                   " wait_ns=", r.wait_ns, " io_ns=", r.io_ns, " error=", r.error);
  absl::StrAppend(&text, " confidence=", static_cast<int>(r.confidence),
                  " reason=", static_cast<int>(r.reason), " stacks=", r.dirtier_stack, "/",
                  r.issuer_stack, " actors=", r.dirtier_actor, "/", r.issuer_actor,
                  " tids=", r.dirtier_tid, "/", r.issuer_tid, " file=", r.file,
                  " requeues=", r.requeues, " merged_bios=", r.merged_bios,
                  " other_bytes=", r.other_bytes, "\n");
  return text;
}

}  // namespace fleetblame::agent
