// SPDX-License-Identifier: Apache-2.0
//
// The tracer contract: what the agent knows of the thing that watches the kernel. Implementations:
// `bpf` (stock kernels with BTF) and `replay` (a recorded file). One conformance suite,
// tests/conformance, runs on all of them.
//
// A tracer charges every byte that a watched device completes to a dirtier and an issuer and sums
// the charges into rows, one window at a time. What it cannot charge it counts as lost: nothing
// disappears. Ids (StackId, ActorId, FileId) are small numbers, local to one Tracer object. An id
// is defined in the Snapshot in which it first appears; an id whose meaning was reclaimed may be
// defined anew later, and the newest definition holds from that snapshot on.
//
// Threading: Collect, SetDevices and SetTrace are called from one thread; PollTrace may be called
// from a second one at the same time. The destructor detaches everything and must not overlap
// calls.
#ifndef NODE_AGENT_TRACER_TRACER_H_
#define NODE_AGENT_TRACER_TRACER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <istream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/histogram.h"
#include "proto/fleetblame/v1/tagwait.pb.h"

namespace fleetblame::agent {

using StackId = uint32_t;  // kernel stack; kNoStack = none, kLostStack = table was full
using ActorId = uint32_t;
using FileId = uint32_t;
inline constexpr StackId kNoStack = 0;
inline constexpr StackId kLostStack = 1;
inline constexpr ActorId kNoActor = 0;
inline constexpr FileId kNoFile = 0;

// Values equal those of fleetblame.v1.Operation and fleetblame.v1.Confidence.
enum class Operation : uint8_t {
  kUnspecified = 0,
  kRead = 1,
  kWrite = 2,
  kDiscard = 3,
  kWriteZeroes = 4,
  kFlush = 5,
  kSecureErase = 6,
  kOther = 7,
};

enum class Confidence : uint8_t {
  kUnspecified = 0,
  kExact = 1,
  kInode = 2,
  kJournal = 3,
  kCgroup = 4,
  kIssuer = 5,
  kLost = 6,
  kEstimated = 7,
};

// dev_t of a block device or filesystem.
struct DeviceNumber {
  uint32_t major = 0;
  uint32_t minor = 0;
  auto operator<=>(const DeviceNumber&) const = default;
};

// Kernel addresses, innermost first. Symbolized by node-agent/symbols with the table that
// OpenKallsyms gives.
struct StackDefinition {
  StackId id = kNoStack;
  std::vector<uint64_t> addresses;
};

struct ActorDefinition {
  ActorId id = kNoActor;
  std::string comm;
  uint64_t cgroup_id = 0;
  std::string cgroup_path;  // below the root; empty = unknown
  bool kernel_thread = false;
};

struct FileDefinition {
  FileId id = kNoFile;
  DeviceNumber filesystem;
  uint64_t inode = 0;
  uint32_t generation = 0;
  std::string path;  // begins with "…/" when only its end is known; empty = unknown
};

struct RowKey {
  StackId dirtier_stack = kNoStack;
  StackId issuer_stack = kNoStack;
  ActorId dirtier_actor = kNoActor;
  ActorId issuer_actor = kNoActor;
  DeviceNumber device;    // whole disk, where the bytes are counted
  // Number of the partition on it; 0 = the whole disk, or not known.
  uint8_t partition = 0;
  // The top-most device that this IO came through, where it is counted as well; {0, 0} = none;
  // `device` itself = one of several above it, not known which.
  DeviceNumber top;
  FileId file = kNoFile;  // only for the top files of the window
  Operation operation = Operation::kUnspecified;
  Confidence confidence = Confidence::kUnspecified;
  uint8_t reason = 0;  // index into TracerInfo::reasons; 0 = no writeback
  auto operator<=>(const RowKey&) const = default;
};

struct RowValues {
  uint64_t ios = 0;
  uint64_t bytes = 0;
  uint64_t wait_ns = 0;  // sum over ios of first queued -> first issued
  uint64_t io_ns = 0;    // sum over ios of issued -> completed
  uint64_t errors = 0;
  uint64_t requeues = 0;
  SparseHistogram wait;
  SparseHistogram io;
};

struct Row {
  RowKey key;
  RowValues values;
};

// Bytes and IOs of one watched device and direction in the window: what the tracer charged to
// somebody, what it counted as lost, and what /sys/block/*/stat moved by.
struct Books {
  DeviceNumber device;
  Operation direction = Operation::kUnspecified;  // kRead, kWrite or kDiscard
  uint64_t recorded_bytes = 0;
  uint64_t lost_bytes = 0;
  uint64_t kernel_bytes = 0;
  uint64_t recorded_ios = 0;
  uint64_t kernel_ios = 0;
};

// Everything of one window.
struct Snapshot {
  uint64_t start_boot_ns = 0;
  uint64_t end_boot_ns = 0;
  std::vector<Row> rows;  // keys are unique
  std::vector<StackDefinition> stacks;
  std::vector<ActorDefinition> actors;
  std::vector<FileDefinition> files;
  std::vector<Books> books;
  // Increase within the window of each loss counter; names as in docs/counters.md.
  std::map<std::string, uint64_t> losses;
  // Tag starvation, when somebody looks. As on the wire, but `intent` is a StackId, `actor` an
  // ActorId, and devices are PackDevice(number).
  std::optional<v1::TagWaits> tag_waits;
};

inline uint32_t PackDevice(DeviceNumber number) { return number.major << 20 | number.minor; }
inline DeviceNumber UnpackDevice(uint32_t packed) { return {packed >> 20, packed & 0xfffff}; }

// One finished IO, in trace mode. Ids refer to definitions that Collect gives or has given;
// a reader resolves them after the next Collect when it does not know them yet.
struct TraceRecord {
  uint64_t complete_boot_ns = 0;
  DeviceNumber device;
  uint64_t sector = 0;
  uint64_t bytes = 0;
  Operation operation = Operation::kUnspecified;
  std::string rwbs;
  uint64_t wait_ns = 0;
  uint64_t io_ns = 0;
  int32_t error = 0;  // positive errno
  Confidence confidence = Confidence::kUnspecified;
  uint8_t reason = 0;
  StackId dirtier_stack = kNoStack;
  StackId issuer_stack = kNoStack;
  ActorId dirtier_actor = kNoActor;
  ActorId issuer_actor = kNoActor;
  uint32_t dirtier_tid = 0;
  uint32_t issuer_tid = 0;
  FileId file = kNoFile;
  uint32_t requeues = 0;
  uint32_t merged_bios = 0;
  uint64_t other_bytes = 0;  // charged to others than `dirtier_actor`
};

// Whole disks to watch. Patterns are kernel names, shell globs or MAJ:MIN; "!" before one takes
// away what earlier ones gave; the last match wins. Empty = every disk that is not a ram disk.
struct DeviceSelection {
  std::vector<std::string> patterns;
};

struct TracerInfo {
  std::string kind;  // "bpf", "replay"
  std::string kernel_release;
  std::string vmlinux_build_id;      // raw bytes; empty when unreadable
  std::vector<std::string> reasons;  // wb_reason names; [0] is ""
  // One sentence each: what this kernel does not give and what that costs in accuracy.
  std::vector<std::string> limitations;
};

class Tracer {
 public:
  virtual ~Tracer() = default;
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  virtual const TracerInfo& info() const = 0;

  // Watches exactly the disks that match from now on. NOT_FOUND when a pattern without glob
  // characters matches no disk; the old selection then stays.
  virtual absl::Status SetDevices(const DeviceSelection& selection) = 0;

  // Ends the window that began at the last Collect (or at creation) and returns it. OUT_OF_RANGE
  // when there will never be another one (end of a replay).
  virtual absl::StatusOr<Snapshot> Collect() = 0;

  // Switches per-IO records on or off.
  virtual absl::Status SetTrace(bool on) = 0;

  // Hands over pending records, waiting at most `timeout` for the first one. `dropped` grows by the
  // records that the kernel could not hand over.
  virtual absl::Status PollTrace(absl::Duration timeout,
                                 const std::function<void(const TraceRecord&)>& sink,
                                 uint64_t* dropped) = 0;

  // The kernel's symbol table in the format of /proc/kallsyms, to be read sequentially.
  virtual absl::StatusOr<std::unique_ptr<std::istream>> OpenKallsyms() = 0;

  // Increases whenever the symbol table may have changed (module load, BPF program load).
  virtual uint64_t SymbolGeneration() = 0;

 protected:
  Tracer() = default;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_TRACER_H_
