// SPDX-License-Identifier: Apache-2.0
//
// Ground-truth scenarios: named writers do a known amount of IO on a scratch filesystem, somebody
// else makes it durable, and a tracer is asked who it was.
//
// What is measured: from just before the writers start until the disk rests after the filesystem
// has been unmounted. The unmount belongs to the span because it writes, in its own name, metadata
// that the writers dirtied: leaving it out would leave out the hardest part. What happens before
// (mkfs, files that the scenario needs, an unmount and mount that settle journals and caches) does
// not.
//
// RunScenario is called from one thread, after EnterPrivateMounts. Bytes throughout.
#ifndef TESTS_GROUNDTRUTH_SCENARIO_H_
#define TESTS_GROUNDTRUTH_SCENARIO_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "node-agent/tracer/tracer.h"
#include "tests/groundtruth/judge.h"
#include "tests/groundtruth/scene.h"
#include "tests/groundtruth/scratch_disk.h"

namespace fleetblame::testing {

// One run of the writer program.
struct Actor {
  std::string comm;
  std::string mode;  // of the writer program
  std::string path;  // below the mount point
  uint64_t bytes = 0;
  uint64_t block = 4096;
  uint64_t offset = 0;
  uint32_t files = 0;
  // Names one of which the dirtier's stack must hold; empty for those who are not judged.
  std::vector<std::string> frames;
  // Mode exec: the name of the process afterwards. It moves as much again.
  std::string then = "";
};

// Who brings the data to the disk when the writers have ended.
enum class Writeback {
  kWriter,    // the writers did it themselves (direct, O_SYNC, fdatasync)
  kSyncfs,    // another process calls syncfs
  kSync,      // another process calls sync
  kFsync,     // another process calls fsync on each writer's file
  kPeriodic,  // nobody: the flusher finds it old enough, some seconds later
  kLaptop,    // nobody: in laptop mode the disk was read, so that it runs anyway
  kReclaim,   // nobody: who looks for memory to reclaim in their cgroup finds dirty pages alone
};

struct Scenario {
  std::string name;
  std::vector<Actor> setup;   // before the measured span
  std::vector<Actor> actors;  // start together, and are judged
  Writeback writeback = Writeback::kSyncfs;
  agent::Operation direction = agent::Operation::kWrite;
  Surroundings surroundings = Surroundings::kPlain;
  // Of the cgroup that the writers run in; 0 = that of the test.
  uint64_t memory_limit_bytes = 0;
  // Percent of memory that may be dirty; 0 = as the machine has it.
  int dirty_percent = 0;
  // Several write to the same pages: what counts is what they get together.
  bool together = false;
  // Nothing ties these pages to a file, so only the right name is asked for.
  bool no_data = false;
  // Of all bytes, what must go to the writers.
  double all_bar = 0.90;
  // Of all bytes, what must go to each of them.
  double each_bar = 0;
  // Why the flusher wrote at least nine tenths of the data; "" = not asked.
  std::string reason = "";
  // What all that the writers are charged with must be; unspecified = not asked.
  agent::Operation operation = agent::Operation::kUnspecified;
  // A function in which writers wait while they bring others' blocks to the disk: they, and nobody
  // else, must be the issuers of what is issued there, and something must be.
  std::string issued_in = "";
  // Flushes without data that each writer asks for; nobody else does but who unmounts.
  uint64_t flushes = 0;
};

// Those that every filesystem with a journal or trees of its own goes through.
const std::vector<Scenario>& AllScenarios();

// Other ways to the disk, each with the filesystems where it makes sense.
struct Path {
  Scenario scenario;
  std::vector<FilesystemKind> filesystems;
  // Where it makes sense too, but shows little that is new: not tested unless asked for.
  std::vector<FilesystemKind> also = {};
};
const std::vector<Path>& AllPaths();

struct Outcome {
  Verdict verdict;
  // Per direction: what the kernel's counters moved by, as read by the scenario itself.
  DiskCounters kernel;
  std::map<agent::Operation, agent::Books> books;
  // Sum of rows per direction, without and with what is marked lost.
  std::map<agent::Operation, uint64_t> charged_bytes;
  std::map<agent::Operation, uint64_t> row_bytes;
  // Of the writers' bytes, those that were written for Scenario::reason.
  uint64_t reason_bytes = 0;
  // Of the writers' bytes, those of Scenario::operation.
  uint64_t operation_bytes = 0;
  // Bytes by why the kernel wrote them, by its own account (its tracepoints), until all was on the
  // disk. Empty = not asked.
  std::map<std::string, uint64_t> kernel_reasons;
  // Bytes by issuer of what was issued in Scenario::issued_in.
  std::map<std::string, uint64_t> issued_in_bytes;
  // Flushes by who was blamed for them.
  std::map<std::string, uint64_t> flushes;
  std::string dump;  // for a person, when something is wrong
};

// A tracer on trial, with all it has defined so far. One may serve many scenarios, as a real agent
// sees disks come and go.
class Defendant {
 public:
  static absl::StatusOr<std::unique_ptr<Defendant>> Create(std::unique_ptr<agent::Tracer> tracer);

  // Watches nothing but `disks`, which must be at rest.
  absl::Status Watch(const std::vector<std::string>& disks);

  // Begins what is to be judged: all before is forgotten.
  absl::Status BeginSpan(const std::vector<agent::DeviceNumber>& disks);
  // Ends it; the ledger then holds its rows and books.
  absl::Status EndSpan(const std::vector<agent::DeviceNumber>& disks);

  const Ledger& ledger() const { return ledger_; }

 private:
  Defendant(std::unique_ptr<agent::Tracer> tracer, KernelSymbols symbols)
      : tracer_(std::move(tracer)),
        symbols_(std::move(symbols)),
        ledger_(&symbols_, &tracer_->info()) {}

  std::unique_ptr<agent::Tracer> tracer_;
  KernelSymbols symbols_;
  Ledger ledger_;
};

// `writer` is the path of the writer program; `summon` is called when the disk is ready and rests.
// UNIMPLEMENTED when this machine lacks what the scenario takes.
absl::StatusOr<Outcome> RunScenario(FilesystemKind kind, const Scenario& scenario,
                                    const std::string& writer,
                                    const std::function<absl::StatusOr<Defendant*>()>& summon);

}  // namespace fleetblame::testing

#endif  // TESTS_GROUNDTRUTH_SCENARIO_H_
