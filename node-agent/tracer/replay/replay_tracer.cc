// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/replay/replay_tracer.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/tag_waits.h"
#include "node-agent/tracer/replay/device_filter.h"
#include "node-agent/tracer/replay/host_pose.h"
#include "node-agent/tracer/replay/recording.h"

namespace fleetblame::agent {
namespace {

uint64_t BootTimeNs() {
  timespec t{};
  clock_gettime(CLOCK_BOOTTIME, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

class ReplayTracer : public Tracer {
 public:
  ReplayTracer(std::unique_ptr<Recording> recording, std::unique_ptr<HostPose> pose,
               const ReplayOptions& options, uint64_t time_shift)
      : recording_(std::move(recording)),
        pose_(std::move(pose)),
        info_(recording_->info()),
        speed_(options.speed),
        loop_(options.loop && recording_->windows() > 0),
        created_boot_ns_(BootTimeNs()),
        time_shift_(time_shift) {
    if (!options.kernel_release.empty()) info_.kernel_release = options.kernel_release;
    if (!options.vmlinux_build_id.empty()) info_.vmlinux_build_id = options.vmlinux_build_id;
    filter_.SetKnown(recording_->devices());
    pose_->AddSymbols(recording_->symbols());
  }

  // Reads the first window, whose trace records may be polled before it is collected.
  void Begin() { Prefetch(); }

  const TracerInfo& info() const override { return info_; }

  absl::Status SetDevices(const DeviceSelection& selection) override {
    absl::MutexLock lock(&mutex_);
    return filter_.Select(selection);
  }

  absl::StatusOr<Snapshot> Collect() override {
    if (!next_status_.ok()) return next_status_;
    if (speed_ > 0) {
      absl::SleepFor(absl::Nanoseconds(UntilDue(next_.snapshot.end_boot_ns, next_laps_)));
    }
    Snapshot snapshot = std::move(next_.snapshot);
    const uint64_t shift = ShiftOf(next_laps_);
    snapshot.start_boot_ns += shift;
    snapshot.end_boot_ns += shift;
    UpdateSymbols();
    pose_->Apply(&snapshot);
    {
      absl::MutexLock lock(&mutex_);
      std::erase_if(snapshot.rows, [&](const Row& r) { return !Watches(r.key.device); });
      std::erase_if(snapshot.books, [&](const Books& b) { return !Watches(b.device); });
      if (snapshot.tag_waits.has_value()) {
        auto wanted = [&](uint32_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return device == 0 || Watches(UnpackDevice(device));
        };
        KeepWaiters(wanted, &*snapshot.tag_waits);
      }
    }
    Prefetch();
    return snapshot;
  }

  absl::Status SetTrace(bool on) override {
    absl::MutexLock lock(&mutex_);
    trace_on_ = on;
    return absl::OkStatus();
  }

  absl::Status PollTrace(absl::Duration timeout,
                         const std::function<void(const TraceRecord&)>& sink,
                         uint64_t* dropped) override {
    const absl::Time deadline = absl::Now() + timeout;
    std::vector<TraceRecord> due;
    {
      absl::MutexLock lock(&mutex_);
      for (;;) {
        TakeDue(&due, dropped);
        if (!due.empty() || absl::Now() >= deadline) break;
        changed_.WaitWithDeadline(&mutex_, std::min(deadline, NextDue()));
      }
    }
    // Unlocked: the sink may take its time.
    for (const TraceRecord& record : due) sink(record);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<std::istream>> OpenKallsyms() override {
    return std::make_unique<std::istringstream>(pose_->Kallsyms());
  }

  uint64_t SymbolGeneration() override { return generation_; }

 private:
  bool Watches(DeviceNumber device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return filter_.Watches(device);
  }

  // What is added to recorded times in a lap; wraps as unsigned numbers do.
  uint64_t ShiftOf(uint64_t laps) const {
    return time_shift_ + laps * (recording_->end_boot_ns() - recording_->start_boot_ns());
  }

  // Nanoseconds from now until a recorded moment comes up at this speed.
  int64_t UntilDue(uint64_t recorded_boot_ns, uint64_t laps) const {
    uint64_t lap_ns = recording_->end_boot_ns() - recording_->start_boot_ns();
    double into = static_cast<double>(laps * lap_ns) +
                  static_cast<double>(recorded_boot_ns - recording_->start_boot_ns());
    double due = into / speed_;
    double passed = static_cast<double>(BootTimeNs() - created_boot_ns_);
    return static_cast<int64_t>(std::clamp(due - passed, 0.0, 1e18));
  }

  // Only now, not when the window was read: the stacks of the one before it were to be named by the
  // table of their time.
  void UpdateSymbols() {
    if (std::exchange(new_lap_, false)) {
      pose_->ClearSymbols();
      if (pose_->AddSymbols(recording_->symbols())) ++generation_;
    }
    for (const auto& symbols : next_.symbols) {
      if (pose_->AddSymbols(symbols)) ++generation_;
    }
  }

  void Prefetch() {
    absl::Status status = recording_->Next(&next_);
    if (absl::IsOutOfRange(status) && loop_) {
      QueueTrace();  // what came after the last window
      ++next_laps_;
      recording_->Rewind();
      new_lap_ = true;
      status = recording_->Next(&next_);
    }
    next_status_ = status;
    QueueTrace();
  }

  // Makes the records of the window to come available. Those of windows gone by are for a reader
  // that is slow; without one they are forgotten.
  void QueueTrace() {
    absl::MutexLock lock(&mutex_);
    if (!trace_on_) {
      pending_.clear();
      pending_dropped_ = 0;
    }
    pending_dropped_ += next_.trace_dropped;
    const uint64_t shift = ShiftOf(next_laps_);
    for (TraceRecord& record : next_.trace) {
      if (pending_.size() >= kMaxTraceRecordsPerWindow) {
        ++pending_dropped_;
        continue;
      }
      pose_->Apply(&record);
      pending_.push_back({record.complete_boot_ns, next_laps_, std::move(record)});
      pending_.back().record.complete_boot_ns += shift;
    }
    next_.trace.clear();
    changed_.SignalAll();
  }

  void TakeDue(std::vector<TraceRecord>* due, uint64_t* dropped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!trace_on_) return;
    while (!pending_.empty()) {
      Pending& p = pending_.front();
      if (speed_ > 0 && UntilDue(p.recorded_boot_ns, p.laps) > 0) break;
      if (Watches(p.record.device)) due->push_back(std::move(p.record));
      pending_.pop_front();
    }
    *dropped += std::exchange(pending_dropped_, 0);
  }

  absl::Time NextDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!trace_on_ || pending_.empty() || speed_ <= 0) {
      // SetTrace and Collect wake the waiter up; this only bounds what a missed wake-up costs.
      return absl::Now() + absl::Milliseconds(200);
    }
    const Pending& p = pending_.front();
    return absl::Now() +
           absl::Nanoseconds(std::max<int64_t>(UntilDue(p.recorded_boot_ns, p.laps), 1000));
  }

  struct Pending {
    uint64_t recorded_boot_ns = 0;
    uint64_t laps = 0;
    TraceRecord record;
  };

  const std::unique_ptr<Recording> recording_;
  const std::unique_ptr<HostPose> pose_;
  TracerInfo info_;
  const double speed_;
  const bool loop_;
  const uint64_t created_boot_ns_;
  const uint64_t time_shift_;

  // Of the thread that collects: the window that the next Collect returns.
  RecordedWindow next_;
  absl::Status next_status_;
  uint64_t next_laps_ = 0;
  bool new_lap_ = false;
  uint64_t generation_ = 1;

  absl::Mutex mutex_;
  absl::CondVar changed_;
  DeviceFilter filter_ ABSL_GUARDED_BY(mutex_);
  bool trace_on_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Pending> pending_ ABSL_GUARDED_BY(mutex_);
  uint64_t pending_dropped_ ABSL_GUARDED_BY(mutex_) = 0;
};

// What is added to recorded times so that the recording lies where `clock` says.
absl::StatusOr<uint64_t> TimeShift(const Recording& recording, ReplayOptions::Clock clock) {
  const uint64_t now = BootTimeNs();
  const uint64_t span = recording.end_boot_ns() - recording.start_boot_ns();
  switch (clock) {
    case ReplayOptions::Clock::kRecorded:
      return 0;
    case ReplayOptions::Clock::kStartNow:
      return now - recording.start_boot_ns();
    case ReplayOptions::Clock::kEndNow:
      if (span > now) {
        return absl::OutOfRangeError(absl::StrCat(
            "replay: the recording spans ", span / 1'000'000'000, " s, but this host booted only ",
            now / 1'000'000'000, " s ago; let it start now instead"));
      }
      return now - recording.end_boot_ns();
  }
  return absl::InvalidArgumentError("replay: unknown clock");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tracer>> CreateReplayTracer(const std::string& path,
                                                           const ReplayOptions& options) {
  if (!std::isfinite(options.speed) || options.speed < 0) {
    return absl::InvalidArgumentError(
        "replay: speed must be 0 (as fast as possible) or a positive number");
  }
  auto recording = Recording::Open(path);
  if (!recording.ok()) return recording.status();
  auto pose = HostPose::Create(options);
  if (!pose.ok()) return pose.status();
  auto shift = TimeShift(**recording, options.clock);
  if (!shift.ok()) return shift.status();
  auto tracer =
      std::make_unique<ReplayTracer>(*std::move(recording), *std::move(pose), options, *shift);
  tracer->Begin();
  return tracer;
}

}  // namespace fleetblame::agent
