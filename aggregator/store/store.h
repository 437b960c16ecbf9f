// SPDX-License-Identifier: Apache-2.0
//
// What the aggregator keeps, and the two ways of asking for it: one host over time, one intent over
// the fleet. The implementation is RocksDB (rocks_store.h); nothing outside this folder may name
// it. docs/store-format.md explains keys and column families.
//
// Numbers (HostNumber, IntentNumber, ...) are the store's own dictionary: dense, never reused,
// meaningful only within one store. 0 is "none".
//
// Threading: every method may be called from any thread. Append calls are serialized inside.
#ifndef AGGREGATOR_STORE_STORE_H_
#define AGGREGATOR_STORE_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/fleetblame/v1/collector.pb.h"
#include "proto/fleetblame/v1/control.pb.h"
#include "proto/fleetblame/v1/tagwait.pb.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::aggregator {

using HostNumber = uint32_t;
using IntentNumber = uint32_t;
using ActorNumber = uint32_t;
using DeviceNumber = uint32_t;
using FileNumber = uint32_t;

// Resolutions. kRaw is whatever windows the agents cut (10 s by default).
enum class Level : uint8_t { kRaw = 0, k1m = 1, k10m = 2, k1h = 3, k6h = 4, k1d = 5 };
inline constexpr int kLevels = 6;
// Length of a bucket; 0 for kRaw.
uint64_t LevelNs(Level level);

struct HostRecord {
  HostNumber number = 0;
  std::string host_id;
  std::string hostname;
  std::map<std::string, std::string> labels;
  std::string kernel_release;
  std::string agent_version;
  std::string tracer;
  uint64_t first_seen_unix_ns = 0;
  uint64_t last_seen_unix_ns = 0;  // of the newest batch or Hello
  int64_t clock_skew_ns = 0;       // aggregator minus host, at the last Hello
};

// A batch on its way in: decoded, its RowBlock validated (ValidateRowBlock).
struct IncomingBatch {
  HostNumber host = 0;
  const v1::Batch* batch = nullptr;    // `rows` is not looked at
  const v1::RowBlock* rows = nullptr;  // tables hold the agent's numbers
};

struct AppendResult {
  enum class Outcome {
    kDurable,          // on disk now
    kDuplicate,        // seq <= durable seq: was on disk before, nothing changed
    kOutOfOrder,       // seq > durable seq + 1: an earlier batch is missing
    kNeedDefinitions,  // `need` says which; nothing of this batch was written
    kInvalid,          // can never be taken; `error` says why
  };
  Outcome outcome = Outcome::kDurable;
  uint64_t durable_seq = 0;  // of this host and spool epoch, afterwards
  v1::Need need;
  absl::Status error;
};

// One block that a scan yields. References are valid during the callback only.
struct ScannedBlock {
  HostNumber host = 0;  // 0 in ScanFleet
  Level level = Level::kRaw;
  uint64_t start_unix_ns = 0;  // what the block covers, [start, end)
  uint64_t end_unix_ns = 0;
  const v1::RowBlock* rows = nullptr;  // tables hold the store's numbers
};
// Return false to end the scan early (budget used up).
using BlockSink = std::function<bool(const ScannedBlock&)>;

struct ScanRange {
  uint64_t start_unix_ns = 0;  // inclusive
  uint64_t end_unix_ns = 0;    // exclusive
  // No block longer than this is used (a series with steps of one minute passes one minute).
  Level coarsest = Level::k1d;
  // Without, the blocks of a scan may lack their histograms, and come up to three times as fast.
  bool histograms = true;
  // ScanHosts shows at most one block of each host.
  bool one_block_a_host = false;
  // ScanFleet and ScanIntents show only what belongs to one of `parts` parts of the fleet; which
  // hosts make up a part is the store's business. For scans of several threads.
  uint32_t part = 0;
  uint32_t parts = 1;
};

struct StoredGap {
  HostNumber host = 0;
  v1::Gap gap;
};

// What one host said of tag starvation in one window or bucket; device, intent and actor numbers
// are the store's. The reference is valid during the callback only.
struct ScannedTagWaits {
  HostNumber host = 0;
  uint64_t end_unix_ns = 0;
  const v1::TagWaits* waits = nullptr;
};
using TagWaitsSink = std::function<bool(const ScannedTagWaits&)>;

struct StoredCoverage {
  HostNumber host = 0;
  DeviceNumber device = 0;
  v1::CoverageSample sample;  // summed over the range; `device` is the store's number
};

// A consistent view of the store at the moment it was made. Cheap; do not keep it for minutes.
class ReadView {
 public:
  virtual ~ReadView() = default;

  virtual std::vector<HostRecord> Hosts() const = 0;

  // Covers the range (rounded outward to the windows that touch it) with the coarsest blocks that
  // fit, each row of a host exactly once, host by host, in time order. `hosts` sorted; a raw window
  // belongs to the instant just before its end.
  virtual absl::Status ScanHosts(std::span<const HostNumber> hosts, const ScanRange& range,
                                 const BlockSink& sink) const = 0;

  // Only rows in which one of `intents` (sorted) is dirtier or issuer intent; same covering rule.
  // Blocks may hold other rows too: filter. Blocks of several hosts come interleaved.
  virtual absl::Status ScanIntents(std::span<const IntentNumber> intents, const ScanRange& range,
                                   const BlockSink& sink) const = 0;

  // All hosts summed, files folded into "none"; same covering rule. Much smaller than ScanHosts
  // over a large fleet.
  virtual absl::Status ScanFleet(const ScanRange& range, const BlockSink& sink) const = 0;

  // NOT_FOUND for unknown numbers. Definitions are immutable; results may be cached.
  virtual absl::StatusOr<v1::Intent> Intent(IntentNumber number) const = 0;
  virtual absl::StatusOr<v1::Actor> Actor(ActorNumber number) const = 0;
  virtual absl::StatusOr<v1::Device> Device(DeviceNumber number) const = 0;
  virtual absl::StatusOr<v1::File> File(FileNumber number) const = 0;

  // Intents whose id begins with `hex_prefix`, at most `limit`.
  virtual absl::StatusOr<std::vector<IntentNumber>> FindIntents(std::string_view hex_prefix,
                                                                size_t limit) const = 0;
  // Every intent in order of number; return false to stop.
  virtual absl::Status ForEachIntent(
      const std::function<bool(IntentNumber, const v1::Intent&)>& sink) const = 0;
  struct SeenSpan {
    uint64_t first_unix_ns = 0;
    uint64_t last_unix_ns = 0;
  };
  virtual absl::StatusOr<SeenSpan> IntentSeen(IntentNumber number) const = 0;

  // `hosts` of these three: sorted.
  virtual absl::StatusOr<std::vector<StoredGap>> Gaps(std::span<const HostNumber> hosts,
                                                      const ScanRange& range) const = 0;
  virtual absl::StatusOr<std::vector<StoredCoverage>> Coverage(std::span<const HostNumber> hosts,
                                                               const ScanRange& range) const = 0;
  // Loss counters summed over hosts and range.
  virtual absl::StatusOr<std::map<std::string, uint64_t>> Losses(std::span<const HostNumber> hosts,
                                                                 const ScanRange& range) const = 0;
  // Covers the range as ScanHosts does; hosts that never reported any cost next to nothing. Blocks
  // of several hosts come interleaved and out of order of time.
  virtual absl::Status TagWaits(std::span<const HostNumber> hosts, const ScanRange& range,
                                const TagWaitsSink& sink) const = 0;
};

class Store {
 public:
  virtual ~Store() = default;

  // ---- identity
  // Changes when dictionaries were lost: random, made when the store was created.
  virtual uint64_t dictionary_epoch() const = 0;
  // Creates the hosts or updates everything but number and first_seen, in one write that is durable
  // on return; their numbers in the same order. A host may come twice. An error means that nothing
  // was written.
  virtual absl::StatusOr<std::vector<HostNumber>> UpsertHosts(
      std::span<const HostRecord> hosts) = 0;
  absl::StatusOr<HostNumber> UpsertHost(const HostRecord& host) {
    absl::StatusOr<std::vector<HostNumber>> numbers = UpsertHosts({&host, 1});
    if (!numbers.ok()) return numbers.status();
    return numbers->front();
  }
  virtual absl::StatusOr<uint64_t> DurableSeq(HostNumber host, uint64_t spool_epoch) const = 0;

  // ---- writing
  // Takes batches of any hosts, in order for each host: interns their definitions, writes rows,
  // coverage, gaps, losses and the new high-water marks in one atomic, fsynced write. One result a
  // batch. An error status means that nothing of it was written and the store is read-only now
  // (disk full, IO error); it tries to recover by itself.
  virtual absl::StatusOr<std::vector<AppendResult>> Append(
      std::span<const IncomingBatch> batches) = 0;
  // Definitions that came apart from a batch, in answer to Need. Durable on return.
  virtual absl::Status AddDefinitions(HostNumber host, const v1::Definitions& definitions) = 0;
  // A gap that the aggregator itself noticed. Durable on return.
  virtual absl::Status AddGap(HostNumber host, const v1::Gap& gap) = 0;

  // The agent no longer holds the batches up to `seq` (its spool lost them, or this store is newer
  // than they are): raises the durable seq of this host and spool epoch to `seq`, never lowers it,
  // and stores `gap` in the same write. Durable on return.
  virtual absl::Status SkipTo(HostNumber host, uint64_t spool_epoch, uint64_t seq,
                              const v1::Gap& gap) = 0;

  // ---- directives (Control service); small and rare
  virtual absl::Status PutDirectives(const v1::ListDirectivesResponse::Set& set) = 0;
  virtual absl::Status DeleteDirectives(std::string_view name) = 0;
  virtual absl::StatusOr<std::vector<v1::ListDirectivesResponse::Set>> ListDirectives() const = 0;

  // ---- reading
  virtual std::unique_ptr<ReadView> NewReadView() const = 0;

  // ---- upkeep
  // Brings rollups up to date and drops what retention no longer wants; called every few seconds by
  // the aggregator's upkeep thread. Returns when there is nothing left to do or `budget_ns` is
  // over.
  virtual absl::Status Upkeep(uint64_t now_unix_ns, uint64_t budget_ns) = 0;
  // Name to value, for /metrics: rows, bytes on disk, interned definitions, pending rollups, ...
  virtual std::map<std::string, double> Gauges() const = 0;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_STORE_H_
