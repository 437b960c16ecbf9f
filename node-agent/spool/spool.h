// SPDX-License-Identifier: Apache-2.0
//
// Keeps every batch until the aggregator says that it is durable. docs/spool-format.md describes
// the files.
//
// Invariants
//   * Numbers: each batch gets the next sequence number; a number that may have left the host never
//     again means anything else, except that a batch may turn into an empty one with a Gap.
//   * After Append returns, the batch survives SIGKILL at any instant (and a power cut if `sync`),
//     unless the disk refused: then it is kept in memory, counted, and written when the disk
//     recovers.
//   * Bounded: at most max_bytes on disk and memory_bytes in memory. When full, batches that
//     never left the host are merged with their neighbours (same sums, longer windows); when that
//     no longer helps, the oldest are dropped and a Gap takes their place.
//   * Every number above the acknowledged one can be read: what was merged into another batch reads
//     as an empty one, so the sequence on the wire has no holes.
//   * Damaged records turn into a Gap of cause "corrupt_spool"; nothing else is lost with them.
//
// Batches are stored without definitions: those are in node-agent/dictionary.
//
// Threading: all methods may be called from any thread.
#ifndef NODE_AGENT_SPOOL_SPOOL_H_
#define NODE_AGENT_SPOOL_SPOOL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "node-agent/spool/file_layer.h"
#include "node-agent/spool/segment.h"
#include "node-agent/spool/spool_state.h"
#include "proto/fleetblame/v1/collector.pb.h"

namespace fleetblame::agent {

// Merges batches of neighbouring windows: returns fewer batches (or as many, when nothing can be
// merged) that say the same. Sequence numbers in its result do not matter.
using CoarsenFunction = std::function<std::vector<v1::Batch>(std::vector<v1::Batch>)>;

struct SpoolOptions {
  std::string directory;
  std::string boot_id;
  uint64_t max_bytes = 256u << 20;
  uint64_t segment_bytes = 0;  // 0 = a sixteenth of max_bytes, within 64 KiB and 8 MiB
  uint64_t memory_bytes = 4u << 20;
  bool sync = true;
  CoarsenFunction coarsen;     // absent = a full spool drops at once
  FileLayer* files = nullptr;  // nullptr = PosixFileLayer()
};

struct SpoolStats {
  uint64_t bytes_on_disk = 0;
  uint64_t bytes_in_memory = 0;
  uint64_t segments = 0;
  uint64_t first_seq = 0;  // oldest that is not acknowledged; 0 when there is none
  uint64_t last_seq = 0;   // newest; 0 when there is none
  // Since the spool was opened.
  uint64_t write_errors = 0;
  uint64_t dropped_batches = 0;
  uint64_t coarsened_batches = 0;  // merged into another one
  uint64_t corrupt_records = 0;
  uint64_t torn_bytes = 0;
  uint64_t rejected_batches = 0;
};

class Spool {
 public:
  // Opens or creates the spool. FAILED_PRECONDITION when a newer agent wrote it. The caller holds
  // the one-process lock (node-agent/host/lock_file.h).
  static absl::StatusOr<std::unique_ptr<Spool>> Open(SpoolOptions options);

  uint64_t epoch() const { return epoch_; }

  // What the state file said when the spool was opened; zeros when it was new.
  const SpoolState& previous_state() const { return previous_state_; }

  // Numbers the batches of one window and keeps them. Never fails; see above.
  void Append(std::vector<v1::Batch> batches) ABSL_LOCKS_EXCLUDED(mutex_);

  // Oldest and newest number that is not acknowledged; both 0 when there is none.
  void Range(uint64_t* first_seq, uint64_t* last_seq) const ABSL_LOCKS_EXCLUDED(mutex_);

  // NOT_FOUND for a number outside Range.
  absl::StatusOr<v1::Batch> Read(uint64_t seq) ABSL_LOCKS_EXCLUDED(mutex_);

  // To be called before `seq` leaves the host.
  void MarkSent(uint64_t seq) ABSL_LOCKS_EXCLUDED(mutex_);
  // The highest number that may have left the host.
  uint64_t sent_seq() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Everything up to `durable_seq` is safe elsewhere.
  void Free(uint64_t durable_seq) ABSL_LOCKS_EXCLUDED(mutex_);

  // For a clean end: no file keeps what was freed, so that the next start sends nothing twice. While
  // running, small files are left, as a new one for each ack would cost more than the old one does.
  void Settle() ABSL_LOCKS_EXCLUDED(mutex_);

  // The aggregator's answer to Hello. Frees, and when numbers that never left this host are said
  // to be durable (a disk that lost its newest records gave numbers out twice), moves those
  // batches behind `durable_seq`. INVALID_ARGUMENT when the number is absurd.
  absl::Status Resume(uint64_t durable_seq) ABSL_LOCKS_EXCLUDED(mutex_);

  // Puts `parts` in the place of `seq`, which the aggregator did not take (nor any later one);
  // later batches are renumbered.
  absl::Status Split(uint64_t seq, std::vector<v1::Batch> parts) ABSL_LOCKS_EXCLUDED(mutex_);

  // The aggregator can never take `seq`: keeps a copy in rejected/ (a few) and puts an empty batch
  // with a Gap of cause "rejected" in its place.
  void SetAside(uint64_t seq) ABSL_LOCKS_EXCLUDED(mutex_);

  // Dictionaries that batches in the spool refer to.
  std::set<uint64_t> DictionariesInUse() const ABSL_LOCKS_EXCLUDED(mutex_);

  SpoolStats stats() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct MemoryRecord {
    uint64_t last_seq = 0;  // > frame's seq for a Gap that stands for several
    SpoolFrame frame;
  };

  using Segments = std::vector<std::shared_ptr<Segment>>;

  explicit Spool(SpoolOptions options);

  // ---- recovery
  absl::Status Recover() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LoadSegments() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetAsideFile(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ApplyGenerations() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillHoles(const std::vector<FrameHeader>& lost) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // ---- writing
  absl::Status WriteFrames(std::span<const SpoolFrame> frames)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status FlushMemory() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepInMemory(std::vector<SpoolFrame> frames) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Roll(uint64_t next_seq) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MakeRoom(uint64_t bytes, uint64_t next_seq) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Coarsen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CoarsenGroup(const Segments& group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool DropOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SaveState() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteWriteError(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Puts `frames` (within the range) in the place of [first, last] everywhere.
  absl::Status Replace(uint64_t first_seq, uint64_t last_seq, std::vector<SpoolFrame> frames,
                       uint32_t coarsening) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Replaces by a Gap; in memory if the disk does not let us.
  void ReplaceByGap(uint64_t first_seq, uint64_t last_seq, const v1::Gap& gap)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Rewrites everything from `from_seq` on: `parts` first, then the old records after `from_seq`
  // (or from it on, when there are no parts), each `shift` higher.
  absl::Status RewriteTail(uint64_t from_seq, std::vector<v1::Batch> parts, uint64_t shift)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // ---- reading
  absl::StatusOr<v1::Batch> ReadStored(uint64_t seq) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<v1::Batch> ReadMerged(uint64_t seq) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  SpoolFrame MakeFrame(const v1::Batch& batch) const;
  v1::Batch GapBatch(uint64_t seq, const v1::Gap& gap) const;
  uint64_t BytesOnDisk() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t FirstSeq() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveSegmentsUpTo(uint64_t seq) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SpoolOptions options_;
  FileLayer& files_;
  uint64_t epoch_ = 0;
  SpoolState previous_state_;

  mutable absl::Mutex mutex_;
  std::unique_ptr<SpoolStateFile> state_file_ ABSL_GUARDED_BY(mutex_);
  SpoolState state_ ABSL_GUARDED_BY(mutex_);
  // By generation, increasing. The last open one is `active_`.
  Segments segments_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Segment> active_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_generation_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t freed_seq_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_seq_ ABSL_GUARDED_BY(mutex_) = 0;
  // What the disk did not take, newest numbers of all.
  std::deque<MemoryRecord> memory_ ABSL_GUARDED_BY(mutex_);
  uint64_t memory_used_ ABSL_GUARDED_BY(mutex_) = 0;
  // Gaps that the disk did not take: first number -> (last number, batch).
  std::map<uint64_t, std::pair<uint64_t, v1::Batch>> memory_gaps_ ABSL_GUARDED_BY(mutex_);
  SpoolStats stats_ ABSL_GUARDED_BY(mutex_);
  bool disk_is_bad_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_SPOOL_SPOOL_H_
