// SPDX-License-Identifier: Apache-2.0
//
// Compares what a tracer reported with what is known to have happened.
//
// A Ledger takes the snapshots of a run and resolves their ids at once, since an id may mean
// something else later. Judge then measures the four things that matter:
//   books   recorded + lost bytes against the kernel's own counters, for each direction
//   data    share of the file data that was charged to its writer, with the writer's own system
//   call
//           (or page fault) in the dirtier stack
//   all     share of all bytes of the device, metadata and journal included, charged to the writers
//   wrong   bytes that are called exact and charged to somebody who did not dirty them, in whatever
//           direction, and of a writer's own file also if it is another writer. Those who
//           sync or unmount do dirty some metadata themselves (a superblock): that much of it is
//           right, and counted apart. So are trees that an fsync builds for itself, which its stack
//           proves (Truth::own_frames): these are the true cause, like the writers
//
// Values; not thread-safe. Bytes throughout.
#ifndef TESTS_GROUNDTRUTH_JUDGE_H_
#define TESTS_GROUNDTRUTH_JUDGE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "node-agent/tracer/tracer.h"
#include "tests/groundtruth/kernel_symbols.h"

namespace fleetblame::testing {

struct ResolvedRow {
  std::string dirtier_comm;  // empty = no actor
  std::string issuer_comm;
  std::vector<std::string> dirtier_frames;  // innermost first
  std::vector<std::string> issuer_frames;
  agent::FileDefinition file;  // id kNoFile = none
  agent::Operation operation = agent::Operation::kUnspecified;
  agent::Confidence confidence = agent::Confidence::kUnspecified;
  std::string reason;
  uint64_t bytes = 0;
  uint64_t ios = 0;
  uint64_t errors = 0;
  uint64_t requeues = 0;
};

// Direction in which the kernel counts an operation: kRead, kWrite or kDiscard.
agent::Operation DirectionOf(agent::Operation operation);

class Ledger {
 public:
  // Both must outlive the ledger.
  Ledger(const KernelSymbols* symbols, const agent::TracerInfo* info)
      : symbols_(symbols), info_(info) {}

  // Adds one snapshot's definitions, and its rows and books of `devices`.
  void Add(const agent::Snapshot& snapshot, const std::vector<agent::DeviceNumber>& devices);

  // Forgets rows, books and losses, and keeps the definitions, which a tracer gives only once.
  void BeginSpan();

  const std::vector<ResolvedRow>& rows() const { return rows_; }
  const std::map<agent::Operation, agent::Books>& books() const { return books_; }
  const std::map<std::string, uint64_t>& losses() const { return losses_; }

 private:
  std::vector<std::string> Frames(agent::StackId id) const;

  const KernelSymbols* symbols_;
  const agent::TracerInfo* info_;
  std::map<agent::StackId, std::vector<uint64_t>> stacks_;
  std::map<agent::ActorId, agent::ActorDefinition> actors_;
  std::map<agent::FileId, agent::FileDefinition> files_;
  std::vector<ResolvedRow> rows_;
  std::map<agent::Operation, agent::Books> books_;
  std::map<std::string, uint64_t> losses_;
};

struct WriterTruth {
  std::string comm;
  uint64_t data_bytes = 0;  // file data of this writer that must have reached the device
  // The dirtier stack of data must hold a function whose name contains one of these.
  std::vector<std::string> frames;
  // The file it wrote, where it is still there; 0 = not known.
  uint64_t inode = 0;
};

struct Truth {
  agent::Operation direction = agent::Operation::kWrite;
  std::vector<WriterTruth> writers;
  // Inodes that hold the writers' data. Rows with another inode are not counted as data.
  std::set<uint64_t> data_inodes;
  // Those who may dirty a little metadata in their own name: the syncer, the unmounter.
  std::set<std::string> metadata_comms;
  // Functions whose presence in the dirtier's stack proves that one of these wrote for itself
  // alone: btrfs gives an fsync a log tree of its own.
  std::vector<std::string> own_frames;
};

struct WriterVerdict {
  std::string comm;
  uint64_t truth_bytes = 0;
  uint64_t data_bytes = 0;    // charged as data with the right stack
  uint64_t all_bytes = 0;     // charged in any way
  double data_share() const;  // 1 at most: bytes beyond the truth earn nothing
};

struct Verdict {
  uint64_t total_bytes = 0;    // all rows of the direction
  uint64_t writers_bytes = 0;  // those charged to any writer
  uint64_t wrong_exact_bytes = 0;
  uint64_t own_metadata_bytes = 0;  // exact, of Truth::metadata_comms, no data
  uint64_t own_tree_bytes = 0;      // the same, proved by Truth::own_frames
  std::vector<WriterVerdict> writers;
  std::map<agent::Confidence, uint64_t> by_confidence;
  double all_share() const;
  double own_metadata_share() const;
  double own_tree_share() const;
  double data_share() const;  // of all writers together
  // The same, where it does not matter who of them got it.
  double joint_data_share() const;
};

Verdict Judge(const Ledger& ledger, const Truth& truth);

const char* ConfidenceName(agent::Confidence confidence);

// The largest `limit` rows as text, for a person who must find out what went wrong.
std::string Dump(const Ledger& ledger, size_t limit);

}  // namespace fleetblame::testing

#endif  // TESTS_GROUNDTRUTH_JUDGE_H_
