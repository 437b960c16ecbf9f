// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/trace_reader.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
// The skeleton uses the types of fleetblame_abi.h.
#include "bpf/fleetblame_bpf.skel.h"
#include "node-agent/tracer/bpf/rwbs.h"
#include "node-agent/tracer/bpf/table_ids.h"

namespace fleetblame::agent {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(10);

}  // namespace

TraceRecord MakeTraceRecord(const fb_trace& raw, size_t reasons) {
  TraceRecord record;
  record.complete_boot_ns = raw.complete_ns;
  record.device = UnpackDevice(raw.dev);
  record.sector = raw.sector;
  record.bytes = raw.bytes;
  record.operation = static_cast<Operation>(raw.op);
  record.rwbs = RwbsText(raw.op, raw.opf);
  record.wait_ns = raw.wait_ns;
  record.io_ns = raw.io_ns;
  record.error = BlockErrorNumber(raw.error);
  record.confidence = static_cast<Confidence>(raw.confidence);
  record.reason = raw.reason < reasons ? raw.reason : 0;
  record.dirtier_stack = raw.dirtier_stack;
  record.issuer_stack = raw.issuer_stack;
  record.dirtier_actor = IdIndex(raw.dirtier_actor);
  record.issuer_actor = IdIndex(raw.issuer_actor);
  record.dirtier_tid = raw.dirtier_tid;
  record.issuer_tid = raw.issuer_tid;
  record.file = raw.file;
  record.requeues = raw.requeues;
  record.merged_bios = raw.merged_bios;
  record.other_bytes = raw.other_bytes;
  return record;
}

TraceReader::~TraceReader() {
  if (ring_ != nullptr) ring_buffer__free(ring_);
}

void TraceReader::Set(bool on) { skeleton_->data->live.trace = on ? 1 : 0; }

int TraceReader::Take(void* context, void* data, size_t size) {
  auto* self = static_cast<TraceReader*>(context);
  if (size < sizeof(fb_trace) || self->sink_ == nullptr) return 0;
  const auto& raw = *static_cast<const fb_trace*>(data);
  const TraceRecord record = MakeTraceRecord(raw, self->reasons_);
  self->definitions_->WantTraced(raw);
  ++self->taken_;
  (*self->sink_)(record);
  return 0;
}

absl::Status TraceReader::Open() {
  if (ring_ != nullptr) return absl::OkStatus();
  ring_ = ring_buffer__new(bpf_map__fd(skeleton_->maps.trace_ring), Take, this, nullptr);
  if (ring_ == nullptr) {
    return absl::InternalError(absl::StrCat("open the trace ring: ", std::strerror(errno)));
  }
  dropped_seen_ = counters_->Read(FB_COUNTER_trace_dropped);
  return absl::OkStatus();
}

absl::Status TraceReader::Poll(absl::Duration timeout,
                               const std::function<void(const TraceRecord&)>& sink,
                               uint64_t* dropped) {
  if (absl::Status status = Open(); !status.ok()) return status;
  sink_ = &sink;
  taken_ = 0;
  const absl::Time deadline = absl::Now() + timeout;
  absl::Status status;
  // Programs do not wake the reader, because a wake-up costs more than the record: look now and
  // then.
  while (true) {
    const int got = ring_buffer__consume(ring_);
    if (got < 0 && got != -EINTR) {
      status = absl::InternalError(absl::StrCat("read the trace ring: ", std::strerror(-got)));
      break;
    }
    const absl::Duration left = deadline - absl::Now();
    if (taken_ > 0 || left <= absl::ZeroDuration()) break;
    absl::SleepFor(std::min(left, kPause));
  }
  sink_ = nullptr;
  const uint64_t drops = counters_->Read(FB_COUNTER_trace_dropped);
  const uint64_t grown = drops - std::exchange(dropped_seen_, drops);
  if (dropped != nullptr) *dropped += grown;
  return status;
}

}  // namespace fleetblame::agent
