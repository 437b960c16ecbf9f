// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/replay/recorder.h"

#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "node-agent/symbols/stack_symbols.h"
#include "node-agent/tracer/replay/codec.h"
#include "node-agent/tracer/replay/device_filter.h"
#include "node-agent/tracer/replay/needed_symbols.h"
#include "node-agent/tracer/replay/recording.pb.h"
#include "node-agent/tracer/replay/recording_file.h"

namespace fleetblame::agent {
namespace {

namespace rec = ::fleetblame::recording::v1;

// Trace records wait for company, since one alone compresses badly; Collect writes what there is.
constexpr int kTraceRecordsPerFrame = 4096;
// Kept free for the end mark.
constexpr uint64_t kEndReserveBytes = 64;

class FileRecorder : public Recorder {
 public:
  FileRecorder(std::unique_ptr<Tracer> inner, std::unique_ptr<RecordingWriter> writer,
               const RecorderOptions& options)
      : inner_(std::move(inner)),
        symbols_(inner_.get(), /*max_stacks=*/0),
        max_bytes_(options.max_bytes),
        writer_(std::move(writer)) {}

  ~FileRecorder() override { (void)Finish(); }

  absl::Status Begin() {
    absl::MutexLock lock(&mutex_);
    Append(FrameType::kInfo, EncodeInfo(inner_->info()).SerializeAsString());
    return status_;
  }

  const TracerInfo& info() const override { return inner_->info(); }
  absl::Status SetDevices(const DeviceSelection& s) override { return inner_->SetDevices(s); }
  absl::Status SetTrace(bool on) override { return inner_->SetTrace(on); }
  uint64_t SymbolGeneration() override { return inner_->SymbolGeneration(); }
  absl::StatusOr<std::unique_ptr<std::istream>> OpenKallsyms() override {
    return inner_->OpenKallsyms();
  }

  absl::StatusOr<Snapshot> Collect() override {
    absl::StatusOr<Snapshot> snapshot = inner_->Collect();
    if (!snapshot.ok() || !recording()) return snapshot;
    // Outside of the lock: reading the symbol table takes a while, and PollTrace must not wait.
    (void)symbols_.Define(snapshot->stacks);
    rec::Symbols symbols = needed_.Take(symbols_.symbolizer().table(), snapshot->stacks);
    rec::Devices devices = NewDevices(*snapshot);
    std::string encoded = EncodeSnapshot(*snapshot).SerializeAsString();
    absl::MutexLock lock(&mutex_);
    FlushTrace();
    if (devices.devices_size() > 0) Append(FrameType::kDevices, devices.SerializeAsString());
    if (symbols.addresses_size() > 0) Append(FrameType::kSymbols, symbols.SerializeAsString());
    Append(FrameType::kSnapshot, encoded);
    return snapshot;
  }

  absl::Status PollTrace(absl::Duration timeout,
                         const std::function<void(const TraceRecord&)>& sink,
                         uint64_t* dropped) override {
    uint64_t dropped_here = 0;
    absl::Status status = inner_->PollTrace(
        timeout,
        [&](const TraceRecord& record) {
          Keep(record);
          sink(record);
        },
        &dropped_here);
    *dropped += dropped_here;
    if (dropped_here > 0) {
      absl::MutexLock lock(&mutex_);
      if (writing()) trace_.set_dropped(trace_.dropped() + dropped_here);
    }
    return status;
  }

  absl::Status recording_status() const override {
    absl::MutexLock lock(&mutex_);
    return status_;
  }

  uint64_t recorded_bytes() const override {
    absl::MutexLock lock(&mutex_);
    return writer_->bytes();
  }

  absl::Status Finish() override {
    absl::MutexLock lock(&mutex_);
    if (finished_) return status_;
    FlushTrace();
    finished_ = true;
    bool limit = absl::IsResourceExhausted(status_);
    if (status_.ok() || limit) {
      rec::End end;
      end.set_size_limit_reached(limit);
      absl::Status written = writer_->Append(FrameType::kEnd, end.SerializeAsString(), max_bytes_);
      if (written.ok()) written = writer_->Sync();
      if (status_.ok()) status_ = written;
    }
    return status_;
  }

 private:
  bool writing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return status_.ok() && !finished_; }
  bool recording() const {
    absl::MutexLock lock(&mutex_);
    return writing();
  }

  void Append(FrameType type, std::string_view payload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!writing()) return;
    uint64_t limit = max_bytes_;
    if (limit != 0) limit = limit > kEndReserveBytes ? limit - kEndReserveBytes : 1;
    status_ = writer_->Append(type, payload, limit);
  }

  void Keep(const TraceRecord& record) {
    absl::MutexLock lock(&mutex_);
    if (!writing()) return;
    EncodeTraceRecord(record, trace_.add_records());
    if (trace_.records_size() >= kTraceRecordsPerFrame) FlushTrace();
  }

  void FlushTrace() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (trace_.records_size() == 0 && trace_.dropped() == 0) return;
    Append(FrameType::kTrace, trace_.SerializeAsString());
    trace_.Clear();
  }

  rec::Devices NewDevices(const Snapshot& snapshot) {
    rec::Devices message;
    auto add = [&](DeviceNumber device) {
      if (!devices_.insert(device).second) return;
      rec::Device* m = message.add_devices();
      m->set_major(device.major);
      m->set_minor(device.minor);
      m->set_name(BlockDeviceName(device));
    };
    for (const Books& b : snapshot.books) add(b.device);
    for (const Row& r : snapshot.rows) {
      add(r.key.device);
      if (r.key.top != DeviceNumber{}) add(r.key.top);
    }
    if (snapshot.tag_waits.has_value()) {
      for (const v1::TagDisk& disk : snapshot.tag_waits->disks()) add(UnpackDevice(disk.device()));
    }
    return message;
  }

  const std::unique_ptr<Tracer> inner_;
  // Of the thread that collects.
  StackSymbols symbols_;
  NeededSymbols needed_;
  std::set<DeviceNumber> devices_;

  const uint64_t max_bytes_;
  mutable absl::Mutex mutex_;
  const std::unique_ptr<RecordingWriter> writer_ ABSL_PT_GUARDED_BY(mutex_);
  rec::Trace trace_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Recorder>> CreateRecorder(std::unique_ptr<Tracer> inner,
                                                         const std::string& path,
                                                         const RecorderOptions& options) {
  absl::StatusOr<std::unique_ptr<RecordingWriter>> writer = RecordingWriter::Create(path);
  if (!writer.ok()) return writer.status();
  auto recorder = std::make_unique<FileRecorder>(std::move(inner), *std::move(writer), options);
  absl::Status status = recorder->Begin();
  if (!status.ok()) return status;
  return recorder;
}

}  // namespace fleetblame::agent
