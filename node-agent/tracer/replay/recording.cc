// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/replay/recording.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "node-agent/tracer/replay/codec.h"
#include "node-agent/tracer/replay/recording.pb.h"

namespace fleetblame::agent {
namespace {

namespace rec = ::fleetblame::recording::v1;

template <typename Message>
absl::StatusOr<Message> Parse(const RecordingFrame& frame) {
  Message message;
  if (!message.ParseFromString(frame.payload)) {
    return absl::DataLossError("recording holds a frame that cannot be decoded");
  }
  return message;
}

absl::StatusOr<std::map<uint64_t, RecordedSymbol>> ParseSymbols(const RecordingFrame& frame) {
  auto m = Parse<rec::Symbols>(frame);
  if (!m.ok()) return m.status();
  if (m->addresses_size() != m->names_size() || m->addresses_size() != m->modules_size()) {
    return absl::DataLossError("recording holds an impossible symbol table");
  }
  std::map<uint64_t, RecordedSymbol> symbols;
  for (int i = 0; i < m->addresses_size(); ++i) {
    if (m->modules(i) >= static_cast<uint32_t>(m->module_names_size())) {
      return absl::DataLossError("recording holds an impossible symbol table");
    }
    symbols[m->addresses(i)] = {m->names(i), m->module_names(static_cast<int>(m->modules(i)))};
  }
  return symbols;
}

absl::StatusOr<Snapshot> ParseSnapshot(const RecordingFrame& frame) {
  auto m = Parse<rec::Snapshot>(frame);
  if (!m.ok()) return m.status();
  return DecodeSnapshot(*m);
}

absl::Status ParseTrace(const RecordingFrame& frame, RecordedWindow* window) {
  auto m = Parse<rec::Trace>(frame);
  if (!m.ok()) return m.status();
  window->trace_dropped += m->dropped();
  for (const rec::TraceRecord& r : m->records()) {
    if (window->trace.size() >= kMaxTraceRecordsPerWindow) {
      ++window->trace_dropped;
      continue;
    }
    auto record = DecodeTraceRecord(r);
    if (!record.ok()) return record.status();
    window->trace.push_back(*std::move(record));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Recording>> Recording::Open(const std::string& path) {
  auto reader = RecordingReader::Open(path);
  if (!reader.ok()) return reader.status();
  std::unique_ptr<Recording> recording(new Recording(*std::move(reader)));
  absl::Status status = recording->Scan();
  if (!status.ok()) return status;
  recording->Rewind();
  return recording;
}

absl::Status Recording::Scan() {
  RecordingFrame frame;
  absl::Status status = reader_->Next(&frame);
  absl::StatusOr<rec::Info> info = absl::DataLossError("");
  if (status.ok() && frame.type == static_cast<uint32_t>(FrameType::kInfo)) {
    info = Parse<rec::Info>(frame);
  }
  if (!info.ok()) {
    return absl::DataLossError(absl::StrCat(
        reader_->path(), ": the recording is damaged from its beginning; copy the file again"));
  }
  info_ = DecodeInfo(*info);
  info_.kind = "replay";
  data_end_ = reader_->offset();
  while (!ended_) {
    status = reader_->Next(&frame);
    if (status.ok()) status = ScanFrame(frame);
    if (!status.ok()) break;
    data_end_ = reader_->offset();
  }
  if (ended_) return absl::OkStatus();
  // Whoever was killed while recording leaves no end mark.
  info_.limitations.push_back(absl::StrCat(
      "the recording ", reader_->path(),
      " is incomplete: ", absl::IsOutOfRange(status) ? "it has no end mark" : status.message(),
      "; its first ", windows_, " windows are played"));
  return absl::OkStatus();
}

absl::Status Recording::ScanFrame(const RecordingFrame& frame) {
  switch (static_cast<FrameType>(frame.type)) {
    case FrameType::kInfo:
      return absl::DataLossError("recording holds a second beginning");
    case FrameType::kSymbols: {
      auto symbols = ParseSymbols(frame);
      if (!symbols.ok()) return symbols.status();
      // Kept where an address has a meaning already: a later one counts from its own place on.
      symbols_.insert(symbols->begin(), symbols->end());
      return absl::OkStatus();
    }
    case FrameType::kSnapshot: {
      auto snapshot = ParseSnapshot(frame);
      if (!snapshot.ok()) return snapshot.status();
      if (windows_ > 0 && snapshot->start_boot_ns < end_boot_ns_) {
        return absl::DataLossError("recording holds windows that overlap");
      }
      if (windows_++ == 0) start_boot_ns_ = snapshot->start_boot_ns;
      end_boot_ns_ = snapshot->end_boot_ns;
      for (const Books& b : snapshot->books) devices_.try_emplace(b.device);
      for (const Row& r : snapshot->rows) devices_.try_emplace(r.key.device);
      return absl::OkStatus();
    }
    case FrameType::kTrace: {
      RecordedWindow ignored;
      return ParseTrace(frame, &ignored);
    }
    case FrameType::kEnd: {
      auto end = Parse<rec::End>(frame);
      if (!end.ok()) return end.status();
      ended_ = true;
      if (end->size_limit_reached()) {
        info_.limitations.push_back(
            absl::StrCat("the recording ", reader_->path(), " ended at its size limit"));
      }
      return absl::OkStatus();
    }
    case FrameType::kDevices: {
      auto devices = Parse<rec::Devices>(frame);
      if (!devices.ok()) return devices.status();
      for (const rec::Device& d : devices->devices()) {
        devices_[{d.major(), d.minor()}] = d.name();
      }
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();  // of a later minor version
}

absl::Status Recording::Next(RecordedWindow* window) {
  *window = RecordedWindow();
  RecordingFrame frame;
  while (reader_->offset() < data_end_) {
    absl::Status status = reader_->Next(&frame);
    if (!status.ok()) {
      // Scan found it good, so the file has changed since.
      return absl::DataLossError(absl::StrCat(status.message(), " while it is played"));
    }
    switch (static_cast<FrameType>(frame.type)) {
      case FrameType::kSymbols: {
        auto symbols = ParseSymbols(frame);
        if (!symbols.ok()) return symbols.status();
        window->symbols.push_back(*std::move(symbols));
        break;
      }
      case FrameType::kTrace:
        status = ParseTrace(frame, window);
        if (!status.ok()) return status;
        break;
      case FrameType::kSnapshot: {
        auto snapshot = ParseSnapshot(frame);
        if (!snapshot.ok()) return snapshot.status();
        window->snapshot = *std::move(snapshot);
        return absl::OkStatus();
      }
      default:
        break;
    }
  }
  return absl::OutOfRangeError(absl::StrCat("the recording ", reader_->path(), " is over"));
}

void Recording::Rewind() { reader_->Seek(kRecordingHeaderBytes); }

}  // namespace fleetblame::agent
