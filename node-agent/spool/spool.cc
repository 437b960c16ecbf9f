// SPDX-License-Identifier: Apache-2.0
#include "node-agent/spool/spool.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/log.h"

namespace fleetblame::agent {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
// After so many merges a window is a thousand times as long as it was.
constexpr uint32_t kMaxCoarsening = 10;
// An active segment that holds acknowledged records only is replaced when it is larger.
constexpr uint64_t kSmallSegmentBytes = 64 << 10;
// Gaps that the disk did not take.
constexpr size_t kMaxMemoryGaps = 1024;
constexpr size_t kMaxRejectedFiles = 16;
constexpr uint64_t kMaxRejectedBytes = 4 << 20;
// An aggregator that claims to be further ahead than this is broken.
constexpr uint64_t kMaxSeqLead = uint64_t{1} << 32;

uint64_t NowUnixNs() { return static_cast<uint64_t>(absl::GetCurrentTimeNanos()); }

uint64_t SegmentBytes(const SpoolOptions& options) {
  if (options.segment_bytes != 0) return options.segment_bytes;
  return std::clamp<uint64_t>(options.max_bytes / 16, 64 << 10, 8 << 20);
}

uint64_t UnixNs(const v1::Window& window, uint64_t boot_ns) {
  return boot_ns + static_cast<uint64_t>(window.realtime_offset_ns());
}

// The same window without anything in it: what stands for a batch that became part of another one.
v1::Batch EmptyLike(const v1::Batch& batch, uint64_t seq) {
  v1::Batch empty;
  empty.set_seq(seq);
  empty.set_spool_epoch(batch.spool_epoch());
  empty.set_dictionary_id(batch.dictionary_id());
  *empty.mutable_window() = batch.window();
  return empty;
}

}  // namespace

Spool::Spool(SpoolOptions options)
    : options_(std::move(options)),
      files_(options_.files != nullptr ? *options_.files : PosixFileLayer()) {}

absl::StatusOr<std::unique_ptr<Spool>> Spool::Open(SpoolOptions options) {
  auto spool = std::unique_ptr<Spool>(new Spool(std::move(options)));
  absl::MutexLock lock(&spool->mutex_);
  if (auto status = spool->Recover(); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat("open spool: ", status.message()));
  }
  return spool;
}

// ---------------------------------------------------------------------------------- recovery

absl::Status Spool::Recover() {
  if (auto status = files_.CreateDirectories(options_.directory); !status.ok()) return status;
  auto state_file = SpoolStateFile::Open(files_, absl::StrCat(options_.directory, "/state"));
  if (!state_file.ok()) return state_file.status();
  state_file_ = *std::move(state_file);
  previous_state_ = state_file_->last();

  if (auto status = LoadSegments(); !status.ok()) return status;
  state_ = previous_state_;
  if (state_.spool_epoch != epoch_) {
    state_.sent_seq = 0;
    state_.last_seq = 0;
  }
  // A state of another boot may be older than what it describes.
  const bool state_is_current =
      state_.spool_epoch == epoch_ && state_.boot_id == options_.boot_id && !state_.boot_id.empty();
  last_seq_ = std::max({last_seq_, state_.last_seq, state_.sent_seq});
  if (!state_is_current) state_.sent_seq = last_seq_;
  state_.spool_epoch = epoch_;
  state_.boot_id = options_.boot_id;
  state_.last_seq = last_seq_;
  // Before anything else is appended: the file may end in something torn.
  if (active_ == nullptr) {
    if (auto status = Roll(last_seq_ + 1); !status.ok()) return status;
  }
  SaveState();
  return absl::OkStatus();
}

absl::Status Spool::LoadSegments() {
  auto names = files_.List(options_.directory);
  if (!names.ok()) return names.status();
  std::vector<FrameHeader> lost;
  for (const std::string& name : *names) {
    uint64_t epoch = 0;
    uint64_t generation = 0;
    if (name.ends_with(".tmp")) {
      // A segment that was never finished; what it was to replace is still there.
      files_.Remove(absl::StrCat(options_.directory, "/", name)).IgnoreError();
      continue;
    }
    if (!Segment::ParseName(name, &epoch, &generation)) continue;
    next_generation_ = std::max(next_generation_, generation + 1);
    SegmentDamage damage;
    auto segment = Segment::Load(files_, options_.directory, name, &damage);
    if (absl::IsDataLoss(segment.status())) {
      LogError("a spool file is unreadable and is set aside", {{"status", segment.status()}});
      ++stats_.corrupt_records;
      SetAsideFile(name);
      continue;
    }
    if (!segment.ok()) return segment.status();
    if (damage.any()) {
      LogWarning("a spool file was damaged; the rest of it is used",
                 {{"path", (*segment)->path()},
                  {"torn_bytes", damage.torn_bytes},
                  {"skipped_bytes", damage.skipped_bytes},
                  {"lost_records", damage.lost_frames.size()}});
    }
    stats_.torn_bytes += damage.torn_bytes;
    if (damage.skipped_bytes > 0) ++stats_.corrupt_records;
    lost.insert(lost.end(), damage.lost_frames.begin(), damage.lost_frames.end());
    segments_.push_back(*std::move(segment));
  }
  // The newest file says which spool this is; others are remains of one that was given up.
  std::sort(segments_.begin(), segments_.end(), [](const auto& a, const auto& b) {
    return a->header().generation < b->header().generation;
  });
  if (segments_.empty()) {
    absl::BitGen random;
    epoch_ = absl::Uniform<uint64_t>(absl::IntervalClosedClosed, random, 1, kNever);
    return absl::OkStatus();
  }
  epoch_ = segments_.back()->header().spool_epoch;
  std::erase_if(segments_,
                [&](const auto& segment) { return segment->header().spool_epoch != epoch_; });
  for (const auto& segment : segments_) last_seq_ = std::max(last_seq_, segment->last_seq());
  ApplyGenerations();
  FillHoles(lost);
  return absl::OkStatus();
}

void Spool::SetAsideFile(const std::string& name) {
  const std::string path = absl::StrCat(options_.directory, "/", name);
  files_.Rename(path, absl::StrCat(path, ".corrupt")).IgnoreError();
}

void Spool::ApplyGenerations() {
  for (size_t newer = 1; newer < segments_.size(); ++newer) {
    const SegmentHeader& header = segments_[newer]->header();
    const uint64_t last = segments_[newer]->open() ? kNever : header.last_seq;
    for (size_t older = 0; older < newer; ++older) {
      segments_[older]->Forget(header.first_seq, last);
    }
  }
  std::erase_if(segments_, [&](const auto& segment) {
    const bool useless = segment->entries().empty() && segment != segments_.back();
    if (useless) segment->Remove().IgnoreError();
    return useless;
  });
  if (segments_.back()->open()) active_ = segments_.back();
}

void Spool::FillHoles(const std::vector<FrameHeader>& lost) {
  // What every number from the oldest on stands for: an entry, or a merged window of a closed
  // segment. The rest is missing.
  struct Span {
    uint64_t first;
    uint64_t last;
  };
  std::vector<Span> present;
  for (const auto& segment : segments_) {
    const SegmentHeader& header = segment->header();
    if (!segment->open() && segment->entries().size() >= header.record_count) {
      present.push_back({header.first_seq, header.last_seq});
      continue;
    }
    for (const SegmentEntry& entry : segment->entries()) present.push_back({entry.seq, entry.seq});
    // A file that begins later than its header says had lost its first records.
    if (segment->open() || header.record_count > 0) {
      present.push_back({header.first_seq, header.first_seq - 1});
    }
  }
  std::sort(present.begin(), present.end(), [](const Span& a, const Span& b) {
    return std::pair(a.first, a.last) < std::pair(b.first, b.last);
  });
  std::vector<Span> holes;
  uint64_t next = present.empty() ? 1 : present.front().first;
  for (const Span& span : present) {
    if (span.first > next) holes.push_back({next, span.first - 1});
    next = std::max(next, span.last + 1);
  }
  const SpoolState& state = previous_state_;
  if (state.spool_epoch == epoch_ && state.last_seq >= next)
    holes.push_back({next, state.last_seq});

  for (const Span& hole : holes) {
    v1::Gap gap;
    gap.set_cause("corrupt_spool");
    gap.set_batches(hole.last - hole.first + 1);
    uint64_t start = kNever;
    uint64_t end = 0;
    for (const FrameHeader& frame : lost) {
      if (frame.seq < hole.first || frame.seq > hole.last) continue;
      start = std::min(start, frame.start_unix_ns);
      end = std::max(end, frame.end_unix_ns);
    }
    if (start == kNever) {
      // Between the neighbours, as far as they are known.
      auto before = ReadStored(hole.first - 1);
      auto after = ReadStored(hole.last + 1);
      end = after.ok() ? UnixNs(after->window(), after->window().start_boot_ns())
                       : state.last_window_end_unix_ns;
      if (end == 0) end = NowUnixNs();
      start = before.ok() ? UnixNs(before->window(), before->window().end_boot_ns()) : end;
    }
    gap.set_start_unix_ns(std::min(start, end));
    gap.set_end_unix_ns(std::max(start, end));
    ++stats_.corrupt_records;
    LogError("spooled batches were lost by damage to the disk; a gap is recorded",
             {{"first_seq", hole.first}, {"last_seq", hole.last}});
    last_seq_ = std::max(last_seq_, hole.last);
    ReplaceByGap(hole.first, hole.last, gap);
  }
}

// ---------------------------------------------------------------------------------- writing

SpoolFrame Spool::MakeFrame(const v1::Batch& batch) const {
  SpoolFrame frame;
  frame.header.seq = batch.seq();
  frame.header.dictionary_id = batch.dictionary_id();
  frame.header.start_unix_ns = UnixNs(batch.window(), batch.window().start_boot_ns());
  frame.header.end_unix_ns = UnixNs(batch.window(), batch.window().end_boot_ns());
  frame.payload = batch.SerializeAsString();
  frame.header.payload_bytes = static_cast<uint32_t>(frame.payload.size());
  return frame;
}

v1::Batch Spool::GapBatch(uint64_t seq, const v1::Gap& gap) const {
  v1::Batch batch;
  batch.set_seq(seq);
  batch.set_spool_epoch(epoch_);
  v1::Window* window = batch.mutable_window();
  window->set_start_boot_ns(0);
  window->set_end_boot_ns(std::max<uint64_t>(1, gap.end_unix_ns() - gap.start_unix_ns()));
  window->set_realtime_offset_ns(static_cast<int64_t>(gap.start_unix_ns()));
  window->set_boot_id(options_.boot_id);
  *batch.add_gaps() = gap;
  return batch;
}

void Spool::Append(std::vector<v1::Batch> batches) {
  absl::MutexLock lock(&mutex_);
  std::vector<SpoolFrame> frames;
  for (v1::Batch& batch : batches) {
    batch.set_seq(++last_seq_);
    batch.set_spool_epoch(epoch_);
    frames.push_back(MakeFrame(batch));
    state_.last_window_end_boot_ns = batch.window().end_boot_ns();
    state_.last_window_end_unix_ns = frames.back().header.end_unix_ns;
  }
  absl::Status status = FlushMemory();
  if (status.ok()) status = WriteFrames(frames);
  if (status.ok()) {
    if (disk_is_bad_) LogInfo("the spool can be written again", {{"path", options_.directory}});
    disk_is_bad_ = false;
  } else {
    NoteWriteError(status);
    KeepInMemory(std::move(frames));
  }
  state_.last_seq = last_seq_;
  SaveState();
}

void Spool::NoteWriteError(const absl::Status& status) {
  ++stats_.write_errors;
  if (!disk_is_bad_) {
    LogError("the spool cannot be written; batches are kept in memory and sent from there",
             {{"status", status}, {"memory_limit_bytes", options_.memory_bytes}});
  }
  disk_is_bad_ = true;
}

void Spool::SaveState() {
  if (auto status = state_file_->Write(state_); !status.ok()) {
    ++stats_.write_errors;
    LogWarning("the state of the spool cannot be written", {{"status", status}});
  }
}

absl::Status Spool::WriteFrames(std::span<const SpoolFrame> frames) {
  if (frames.empty()) return absl::OkStatus();
  uint64_t bytes = 0;
  for (const SpoolFrame& frame : frames) bytes += kFrameHeaderBytes + frame.payload.size();
  const uint64_t next_seq = frames.front().header.seq;
  if (auto status = MakeRoom(bytes, next_seq); !status.ok()) return status;
  const bool full = active_ != nullptr && !active_->entries().empty() &&
                    active_->bytes() + bytes > SegmentBytes(options_);
  if (active_ == nullptr || active_->broken() || full) {
    if (auto status = Roll(next_seq); !status.ok()) return status;
  }
  return active_->Append(frames, options_.sync);
}

absl::Status Spool::Roll(uint64_t next_seq) {
  SegmentHeader header;
  header.spool_epoch = epoch_;
  header.generation = next_generation_++;
  header.first_seq = next_seq;
  auto segment = Segment::Create(files_, options_.directory, header, {}, options_.sync);
  if (!segment.ok()) return segment.status();
  active_ = *std::move(segment);
  segments_.push_back(active_);
  RemoveSegmentsUpTo(freed_seq_);
  return absl::OkStatus();
}

absl::Status Spool::MakeRoom(uint64_t bytes, uint64_t next_seq) {
  while (BytesOnDisk() + bytes > options_.max_bytes) {
    if (Coarsen()) continue;
    if (DropOldest()) continue;
    // Only the active segment is left: close it, then it can be dropped too.
    if (active_ == nullptr || active_->entries().empty()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a window of ", bytes, " bytes does not fit into a spool of ",
                       options_.max_bytes, "; raise --spool-max-bytes"));
    }
    if (auto status = Roll(next_seq); !status.ok()) return status;
  }
  return absl::OkStatus();
}

bool Spool::Coarsen() {
  if (!options_.coarsen) return false;
  // What never left the host, in order of its numbers.
  std::vector<std::shared_ptr<Segment>> candidates;
  for (const auto& segment : segments_) {
    if (segment == active_ || segment->header().coarsening >= kMaxCoarsening) continue;
    if (segment->entries().empty()) continue;
    if (segment->entries().front().seq <= std::max(state_.sent_seq, freed_seq_)) continue;
    candidates.push_back(segment);
  }
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a->entries().front().seq < b->entries().front().seq;
  });
  // Neighbours that were merged as often go together while they fit one file.
  std::vector<Segments> groups;
  uint64_t bytes = 0;
  for (const auto& segment : candidates) {
    const bool fits = !groups.empty() &&
                      groups.back().back()->last_seq() + 1 == segment->entries().front().seq &&
                      groups.back().back()->header().coarsening == segment->header().coarsening &&
                      bytes + segment->bytes() <= SegmentBytes(options_);
    if (!fits) {
      groups.emplace_back();
      bytes = 0;
    }
    groups.back().push_back(segment);
    bytes += segment->bytes();
  }
  // Least merged first, oldest first among equals.
  std::stable_sort(groups.begin(), groups.end(), [](const Segments& a, const Segments& b) {
    return a.front()->header().coarsening < b.front()->header().coarsening;
  });
  for (const Segments& group : groups) {
    if (CoarsenGroup(group)) return true;
  }
  return false;
}

bool Spool::CoarsenGroup(const Segments& group) {
  std::vector<v1::Batch> batches;
  uint64_t old_bytes = 0;
  for (const auto& segment : group) {
    old_bytes += segment->bytes();
    for (const SegmentEntry& entry : segment->entries()) {
      auto batch = ReadStored(entry.seq);
      if (!batch.ok()) return false;
      batches.push_back(*std::move(batch));
    }
  }
  const uint64_t first = group.front()->entries().front().seq;
  const uint64_t last = group.back()->last_seq();
  const size_t before = batches.size();
  std::vector<v1::Batch> merged = options_.coarsen(std::move(batches));
  if (merged.empty() || merged.size() >= before) return false;
  std::vector<SpoolFrame> frames;
  uint64_t bytes = 0;
  for (size_t i = 0; i < merged.size(); ++i) {
    merged[i].set_seq(first + i);
    merged[i].set_spool_epoch(epoch_);
    frames.push_back(MakeFrame(merged[i]));
    bytes += kFrameHeaderBytes + frames.back().payload.size();
  }
  // Not worth the precision that it costs: let the oldest go instead.
  if (bytes > old_bytes / 10 * 9) return false;
  if (auto status = Replace(first, last, std::move(frames), group.front()->header().coarsening + 1);
      !status.ok()) {
    NoteWriteError(status);
    return false;
  }
  stats_.coarsened_batches += before - merged.size();
  LogWarning("the spool is full; neighbouring windows were merged",
             {{"first_seq", first}, {"last_seq", last}, {"freed_bytes", old_bytes - bytes}});
  return true;
}

bool Spool::DropOldest() {
  std::shared_ptr<Segment> oldest;
  for (const auto& segment : segments_) {
    if (segment == active_ || segment->entries().empty()) continue;
    if (oldest == nullptr || segment->entries().front().seq < oldest->entries().front().seq) {
      oldest = segment;
    }
  }
  // A file that is a Gap already frees nothing by becoming one again; it goes into the next one.
  if (oldest == nullptr) return false;
  const uint64_t first = std::max(oldest->entries().front().seq, freed_seq_ + 1);
  uint64_t last = std::max(oldest->last_seq(), first);
  std::vector<std::shared_ptr<Segment>> victims = {oldest};
  const uint64_t useless_bytes = 2 * kSegmentHeaderBytes + kFrameHeaderBytes + 256;
  if (oldest->bytes() <= useless_bytes) {
    for (const auto& segment : segments_) {
      if (segment == active_ || segment->entries().empty()) continue;
      if (segment->entries().front().seq == last + 1 && segment->bytes() > useless_bytes) {
        victims.push_back(segment);
        last = segment->last_seq();
        break;
      }
    }
    if (victims.size() == 1) return false;
  }
  v1::Gap gap;
  gap.set_cause("spool_full");
  uint64_t batches = 0;
  uint64_t start = kNever;
  uint64_t end = 0;
  for (const auto& victim : victims) {
    for (const SegmentEntry& entry : victim->entries()) {
      if (entry.seq < first) continue;  // acknowledged
      auto frame = victim->Read(entry);
      if (!frame.ok()) continue;
      start = std::min(start, frame->header.start_unix_ns);
      end = std::max(end, frame->header.end_unix_ns);
      v1::Batch batch;
      const bool is_gap = batch.ParseFromString(frame->payload) && batch.row_count() == 0 &&
                          batch.gaps_size() == 1 && batch.gaps(0).cause() == "spool_full";
      batches += is_gap ? batch.gaps(0).batches() : 1;
      if (!is_gap) ++stats_.dropped_batches;
    }
  }
  if (start == kNever) start = end = NowUnixNs();
  gap.set_start_unix_ns(start);
  gap.set_end_unix_ns(std::max(start, end));
  gap.set_batches(batches);
  LogWarning("the spool is full; its oldest batches are dropped and a gap is recorded",
             {{"first_seq", first}, {"last_seq", last}, {"max_bytes", options_.max_bytes}});
  ReplaceByGap(first, last, gap);
  return true;
}

absl::Status Spool::FlushMemory() {
  while (!memory_gaps_.empty()) {
    auto it = memory_gaps_.begin();
    const uint64_t last = it->second.first;
    // Behind the newest number on disk it has to wait for its predecessors.
    if (active_ != nullptr && it->first > active_->last_seq()) break;
    std::vector<SpoolFrame> frames = {MakeFrame(it->second.second)};
    const uint64_t first = it->first;
    if (auto status = Replace(first, last, std::move(frames), 0); !status.ok()) return status;
    memory_gaps_.erase(first);
  }
  while (!memory_.empty()) {
    const MemoryRecord& record = memory_.front();
    if (auto status = WriteFrames({&record.frame, 1}); !status.ok()) return status;
    if (record.last_seq > record.frame.header.seq) {
      // A Gap over several numbers needs a file of its own, so that these are known to be meant.
      std::vector<SpoolFrame> frames = {record.frame};
      const uint64_t first = record.frame.header.seq;
      if (auto status = Replace(first, record.last_seq, std::move(frames), 0); !status.ok()) {
        return status;
      }
      if (auto status = Roll(record.last_seq + 1); !status.ok()) return status;
    }
    memory_used_ -= record.frame.payload.size();
    memory_.pop_front();
  }
  return absl::OkStatus();
}

void Spool::KeepInMemory(std::vector<SpoolFrame> frames) {
  for (SpoolFrame& frame : frames) {
    memory_used_ += frame.payload.size();
    const uint64_t seq = frame.header.seq;
    memory_.push_back({seq, std::move(frame)});
  }
  while (memory_used_ > options_.memory_bytes && memory_.size() > 1) {
    // The two oldest become one Gap; when the first of them is one already it grows.
    MemoryRecord first = std::move(memory_.front());
    memory_.pop_front();
    MemoryRecord second = std::move(memory_.front());
    memory_.pop_front();
    memory_used_ -= first.frame.payload.size() + second.frame.payload.size();
    uint64_t batches = 0;
    for (const MemoryRecord* record : {&first, &second}) {
      const uint64_t covered = record->last_seq - record->frame.header.seq + 1;
      batches += covered;
      if (covered == 1) ++stats_.dropped_batches;
    }
    v1::Gap gap;
    gap.set_cause("spool_full");
    gap.set_start_unix_ns(
        std::min(first.frame.header.start_unix_ns, second.frame.header.start_unix_ns));
    gap.set_end_unix_ns(std::max(first.frame.header.end_unix_ns, second.frame.header.end_unix_ns));
    gap.set_batches(batches);
    MemoryRecord merged;
    merged.last_seq = second.last_seq;
    merged.frame = MakeFrame(GapBatch(first.frame.header.seq, gap));
    memory_used_ += merged.frame.payload.size();
    memory_.push_front(std::move(merged));
  }
}

absl::Status Spool::Replace(uint64_t first_seq, uint64_t last_seq, std::vector<SpoolFrame> frames,
                            uint32_t coarsening) {
  SegmentHeader header;
  header.spool_epoch = epoch_;
  header.generation = next_generation_++;
  header.first_seq = first_seq;
  header.last_seq = last_seq;
  header.record_count = static_cast<uint32_t>(frames.size());
  header.coarsening = coarsening;
  auto segment = Segment::Create(files_, options_.directory, header, frames, options_.sync);
  if (!segment.ok()) return segment.status();
  for (const auto& older : segments_) older->Forget(first_seq, last_seq);
  // The active segment stays the last.
  segments_.insert(active_ == nullptr ? segments_.end() : segments_.end() - 1, *std::move(segment));
  std::erase_if(segments_, [&](const auto& old) {
    if (old == active_ || !old->entries().empty()) return false;
    old->Remove().IgnoreError();
    return true;
  });
  return absl::OkStatus();
}

void Spool::ReplaceByGap(uint64_t first_seq, uint64_t last_seq, const v1::Gap& gap) {
  v1::Batch batch = GapBatch(first_seq, gap);
  const absl::Status status = Replace(first_seq, last_seq, {MakeFrame(batch)}, 0);
  if (status.ok()) return;
  NoteWriteError(status);
  // After a crash the hole is found again and becomes a Gap then.
  for (const auto& segment : segments_) segment->Forget(first_seq, last_seq);
  std::erase_if(segments_, [&](const auto& segment) {
    if (segment == active_ || !segment->entries().empty()) return false;
    segment->Remove().IgnoreError();
    return true;
  });
  if (memory_gaps_.size() < kMaxMemoryGaps) memory_gaps_[first_seq] = {last_seq, batch};
}

absl::Status Spool::RewriteTail(uint64_t from_seq, std::vector<v1::Batch> parts, uint64_t shift) {
  SegmentHeader header;
  header.spool_epoch = epoch_;
  header.generation = next_generation_++;
  header.first_seq = from_seq;
  auto segment = Segment::Begin(files_, options_.directory, header);
  if (!segment.ok()) return segment.status();
  const bool replaces_first = !parts.empty();
  uint64_t seq = from_seq;
  for (v1::Batch& part : parts) {
    part.set_seq(seq++);
    part.set_spool_epoch(epoch_);
    const SpoolFrame frame = MakeFrame(part);
    if (auto status = (*segment)->Append({&frame, 1}, false); !status.ok()) return status;
  }
  for (uint64_t old = replaces_first ? from_seq + 1 : from_seq; old <= last_seq_; ++old) {
    auto batch = ReadStored(old);
    if (!batch.ok()) batch = ReadMerged(old);
    if (!batch.ok()) return batch.status();
    batch->set_seq(old + shift);
    const SpoolFrame frame = MakeFrame(*batch);
    if (auto status = (*segment)->Append({&frame, 1}, false); !status.ok()) return status;
  }
  if (auto status = (*segment)->Commit(options_.sync); !status.ok()) return status;
  for (const auto& older : segments_) older->Forget(from_seq, kNever);
  active_ = *std::move(segment);
  segments_.push_back(active_);
  std::erase_if(segments_, [&](const auto& old) {
    if (old == active_ || !old->entries().empty()) return false;
    old->Remove().IgnoreError();
    return true;
  });
  memory_.clear();
  memory_used_ = 0;
  memory_gaps_.erase(memory_gaps_.lower_bound(from_seq), memory_gaps_.end());
  last_seq_ += shift;
  state_.last_seq = last_seq_;
  return absl::OkStatus();
}

absl::Status Spool::Split(uint64_t seq, std::vector<v1::Batch> parts) {
  absl::MutexLock lock(&mutex_);
  if (seq <= freed_seq_ || seq > last_seq_) {
    return absl::NotFoundError(absl::StrCat("no batch ", seq, " in the spool"));
  }
  if (parts.size() < 2) return absl::InvalidArgumentError("a split needs at least two parts");
  const uint64_t shift = parts.size() - 1;
  absl::Status status = RewriteTail(seq, std::move(parts), shift);
  if (status.ok()) {
    state_.sent_seq = seq - 1;
    SaveState();
  }
  return status;
}

void Spool::SetAside(uint64_t seq) {
  absl::MutexLock lock(&mutex_);
  if (seq <= freed_seq_ || seq > last_seq_) return;
  auto batch = ReadStored(seq);
  v1::Gap gap;
  gap.set_cause("rejected");
  gap.set_batches(1);
  gap.set_start_unix_ns(NowUnixNs());
  gap.set_end_unix_ns(NowUnixNs());
  ++stats_.rejected_batches;
  if (batch.ok()) {
    gap.set_start_unix_ns(UnixNs(batch->window(), batch->window().start_boot_ns()));
    gap.set_end_unix_ns(UnixNs(batch->window(), batch->window().end_boot_ns()));
    const std::string directory = absl::StrCat(options_.directory, "/rejected");
    absl::Status kept = files_.CreateDirectories(directory);
    auto names = files_.List(directory);
    if (kept.ok() && names.ok() && names->size() < kMaxRejectedFiles &&
        batch->ByteSizeLong() <= kMaxRejectedBytes) {
      kept = WriteFileAtomically(
          files_, absl::StrCat(directory, "/", absl::StrFormat("%016x-%016x.batch", epoch_, seq)),
          batch->SerializeAsString());
    }
    if (!kept.ok()) LogWarning("a rejected batch could not be kept", {{"status", kept}});
  }
  for (MemoryRecord& record : memory_) {
    if (record.frame.header.seq != seq) continue;
    memory_used_ -= record.frame.payload.size();
    record.frame = MakeFrame(GapBatch(seq, gap));
    memory_used_ += record.frame.payload.size();
    return;
  }
  ReplaceByGap(seq, seq, gap);
}

// ---------------------------------------------------------------------------------- reading

void Spool::Range(uint64_t* first_seq, uint64_t* last_seq) const {
  absl::MutexLock lock(&mutex_);
  *first_seq = FirstSeq();
  *last_seq = *first_seq == 0 ? 0 : last_seq_;
}

uint64_t Spool::FirstSeq() const {
  uint64_t first = kNever;
  for (const auto& segment : segments_) {
    const auto& entries = segment->entries();
    const auto it =
        std::upper_bound(entries.begin(), entries.end(), freed_seq_,
                         [](uint64_t seq, const SegmentEntry& entry) { return seq < entry.seq; });
    if (it != entries.end()) first = std::min(first, it->seq);
    // The first number of a merged range may be acknowledged while later ones are not.
    if (!segment->open() && segment->header().last_seq > freed_seq_ &&
        !segment->entries().empty() && segment->entries().front().seq <= freed_seq_) {
      first = std::min(first, freed_seq_ + 1);
    }
  }
  if (!memory_.empty()) first = std::min(first, memory_.front().frame.header.seq);
  if (!memory_gaps_.empty()) first = std::min(first, memory_gaps_.begin()->first);
  return first == kNever ? 0 : std::max(first, freed_seq_ + 1);
}

absl::StatusOr<v1::Batch> Spool::ReadStored(uint64_t seq) {
  auto parse = [&](const std::string& payload) -> absl::StatusOr<v1::Batch> {
    v1::Batch batch;
    if (!batch.ParseFromString(payload)) {
      return absl::DataLossError(absl::StrCat("batch ", seq, " in the spool is not readable"));
    }
    return batch;
  };
  if (auto it = memory_gaps_.find(seq); it != memory_gaps_.end()) return it->second.second;
  for (const MemoryRecord& record : memory_) {
    if (record.frame.header.seq == seq) return parse(record.frame.payload);
  }
  for (const auto& segment : segments_) {
    const SegmentEntry* entry = segment->Find(seq);
    if (entry == nullptr) continue;
    auto frame = segment->Read(*entry);
    if (!frame.ok()) return frame.status();
    return parse(frame->payload);
  }
  return absl::NotFoundError(absl::StrCat("no batch ", seq, " in the spool"));
}

absl::StatusOr<v1::Batch> Spool::ReadMerged(uint64_t seq) {
  // The record into which it was merged is the nearest one below it.
  if (auto it = memory_gaps_.upper_bound(seq); it != memory_gaps_.begin()) {
    --it;
    if (seq <= it->second.first) return EmptyLike(it->second.second, seq);
  }
  uint64_t nearest = 0;
  for (const auto& segment : segments_) {
    const SegmentEntry* entry = segment->FindAtOrBelow(seq);
    if (entry != nullptr) nearest = std::max(nearest, entry->seq);
  }
  for (const MemoryRecord& record : memory_) {
    if (record.frame.header.seq <= seq) nearest = std::max(nearest, record.frame.header.seq);
  }
  if (nearest > 0) {
    auto batch = ReadStored(nearest);
    if (batch.ok()) return EmptyLike(*batch, seq);
  }
  v1::Gap gap;
  gap.set_start_unix_ns(NowUnixNs());
  gap.set_end_unix_ns(gap.start_unix_ns());
  v1::Batch batch = GapBatch(seq, gap);
  batch.clear_gaps();
  return batch;
}

absl::StatusOr<v1::Batch> Spool::Read(uint64_t seq) {
  absl::MutexLock lock(&mutex_);
  if (seq <= freed_seq_ || seq > last_seq_) {
    return absl::NotFoundError(absl::StrCat("no batch ", seq, " in the spool"));
  }
  auto batch = ReadStored(seq);
  if (absl::IsNotFound(batch.status())) return ReadMerged(seq);
  if (batch.ok()) return batch;
  // Readable when it was written, and not now.
  LogError("a spooled batch was damaged; a gap is recorded", {{"status", batch.status()}});
  ++stats_.corrupt_records;
  v1::Gap gap;
  gap.set_cause("corrupt_spool");
  gap.set_batches(1);
  auto before = ReadStored(seq - 1);
  auto after = ReadStored(seq + 1);
  const uint64_t end = after.ok() ? UnixNs(after->window(), after->window().start_boot_ns())
                                  : state_.last_window_end_unix_ns;
  const uint64_t start =
      before.ok() ? UnixNs(before->window(), before->window().end_boot_ns()) : end;
  gap.set_start_unix_ns(std::min(start, end));
  gap.set_end_unix_ns(std::max(start, end));
  ReplaceByGap(seq, seq, gap);
  return GapBatch(seq, gap);
}

// ---------------------------------------------------------------------------------- acks

void Spool::MarkSent(uint64_t seq) {
  absl::MutexLock lock(&mutex_);
  if (seq <= state_.sent_seq) return;
  state_.sent_seq = seq;
  SaveState();
}

uint64_t Spool::sent_seq() const {
  absl::MutexLock lock(&mutex_);
  return state_.sent_seq;
}

void Spool::Free(uint64_t durable_seq) {
  absl::MutexLock lock(&mutex_);
  durable_seq = std::min(durable_seq, last_seq_);
  if (durable_seq <= freed_seq_) return;
  freed_seq_ = durable_seq;
  if (state_.sent_seq < durable_seq) {
    state_.sent_seq = durable_seq;
    SaveState();
  }
  while (!memory_.empty() && memory_.front().last_seq <= freed_seq_) {
    memory_used_ -= memory_.front().frame.payload.size();
    memory_.pop_front();
  }
  std::erase_if(memory_gaps_, [&](const auto& gap) { return gap.second.first <= freed_seq_; });
  if (active_ != nullptr && active_->last_seq() <= freed_seq_ &&
      active_->bytes() > std::min(kSmallSegmentBytes, options_.max_bytes / 4) && memory_.empty()) {
    // A new file first: one must always be there to tell the next number.
    if (auto status = Roll(last_seq_ + 1); !status.ok()) NoteWriteError(status);
  }
  RemoveSegmentsUpTo(freed_seq_);
}

void Spool::Settle() {
  absl::MutexLock lock(&mutex_);
  const bool unused = active_ == nullptr || active_->last_seq() < active_->header().first_seq;
  if (unused || active_->last_seq() > freed_seq_ || !memory_.empty()) return;
  if (auto status = Roll(last_seq_ + 1); !status.ok()) NoteWriteError(status);
  RemoveSegmentsUpTo(freed_seq_);
}

void Spool::RemoveSegmentsUpTo(uint64_t seq) {
  std::vector<std::shared_ptr<Segment>> kept;
  for (const auto& segment : segments_) {
    bool keep = segment == active_ || segment->last_seq() > seq;
    // What this one replaced must not come to life again while the file that holds it is there.
    for (const auto& other : segments_) {
      keep = keep || (other->header().generation < segment->header().generation &&
                      other->last_seq() > seq && other->header().first_seq <= segment->last_seq());
    }
    if (!keep) {
      const absl::Status status = segment->Remove();
      if (!status.ok()) LogWarning("a spool file cannot be removed", {{"status", status}});
      keep = !status.ok();
    }
    if (keep) kept.push_back(segment);
  }
  segments_ = std::move(kept);
}

absl::Status Spool::Resume(uint64_t durable_seq) {
  {
    absl::MutexLock lock(&mutex_);
    if (durable_seq > last_seq_ && durable_seq - last_seq_ > kMaxSeqLead) {
      return absl::InvalidArgumentError(absl::StrCat("the aggregator says that batch ", durable_seq,
                                                     " is durable, but the newest one is ",
                                                     last_seq_));
    }
    if (durable_seq > state_.sent_seq) {
      const uint64_t first_own = std::max(state_.sent_seq, freed_seq_) + 1;
      if (first_own <= last_seq_) {
        LogWarning("the aggregator already has batches under numbers given out again; renumbering",
                   {{"first_seq", first_own}, {"durable_seq", durable_seq}});
        const uint64_t shift = durable_seq + 1 - first_own;
        if (auto status = RewriteTail(first_own, {}, shift); !status.ok()) return status;
      } else {
        last_seq_ = std::max(last_seq_, durable_seq);
        state_.last_seq = last_seq_;
        if (auto status = Roll(last_seq_ + 1); !status.ok()) NoteWriteError(status);
      }
      state_.sent_seq = durable_seq;
      SaveState();
    }
  }
  Free(durable_seq);
  return absl::OkStatus();
}

std::set<uint64_t> Spool::DictionariesInUse() const {
  absl::MutexLock lock(&mutex_);
  std::set<uint64_t> ids;
  for (const auto& segment : segments_) {
    if (segment->entries().empty() || segment->entries().back().seq <= freed_seq_) continue;
    ids.insert(segment->dictionaries().begin(), segment->dictionaries().end());
  }
  for (const MemoryRecord& record : memory_) ids.insert(record.frame.header.dictionary_id);
  ids.erase(0);
  return ids;
}

uint64_t Spool::BytesOnDisk() const {
  uint64_t bytes = 0;
  for (const auto& segment : segments_) bytes += segment->bytes();
  return bytes;
}

SpoolStats Spool::stats() const {
  absl::MutexLock lock(&mutex_);
  SpoolStats stats = stats_;
  stats.bytes_on_disk = BytesOnDisk();
  stats.bytes_in_memory = memory_used_;
  stats.segments = segments_.size();
  stats.first_seq = FirstSeq();
  stats.last_seq = stats.first_seq == 0 ? 0 : last_seq_;
  return stats;
}

}  // namespace fleetblame::agent
