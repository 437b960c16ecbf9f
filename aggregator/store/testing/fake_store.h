// SPDX-License-Identifier: Apache-2.0
//
// A Store in memory, for tests of what stands above the store. It keeps the contract of store.h in
// the plainest way (linear scans, no upkeep), so it also serves as the model that answers are
// compared with. Beyond the contract a test may put rows in directly and make writes fail.
//
// Threading: as store.h demands. Errors: those of the contract, and what FailAppends was given.
#ifndef AGGREGATOR_STORE_TESTING_FAKE_STORE_H_
#define AGGREGATOR_STORE_TESTING_FAKE_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "aggregator/store/store.h"
#include "common/row_block.h"

namespace fleetblame::aggregator {

class FakeStore : public Store {
 public:
  FakeStore();
  ~FakeStore() override;

  // ---- for tests
  // Rows of one window; numbers are those that Intern* returned.
  void AddRows(HostNumber host, uint64_t start_unix_ns, uint64_t end_unix_ns,
               std::vector<BlockRow> rows);
  void AddCoverage(HostNumber host, uint64_t start_unix_ns, uint64_t end_unix_ns,
                   const v1::CoverageSample& sample);
  void AddLoss(HostNumber host, uint64_t start_unix_ns, uint64_t end_unix_ns,
               const std::string& name, uint64_t delta);
  // Numbers are those that Intern* returned.
  void AddTagWaits(HostNumber host, uint64_t end_unix_ns, const v1::TagWaits& waits);
  IntentNumber InternIntent(const v1::Intent& intent);
  ActorNumber InternActor(const v1::Actor& actor);
  DeviceNumber InternDevice(const v1::Device& device);
  FileNumber InternFile(const v1::File& file);

  // Scans of views made from now on give whole minutes, hours and so on as one block each.
  void EnableRollups(bool enabled);
  // Raw windows that end at or before this time are gone, as after retention; rollups stay.
  void ForgetRawBefore(uint64_t unix_ns);
  // Every write fails with `status` until it is called with OK.
  void FailWrites(absl::Status status);
  // Writes of hosts so far; each would cost an fsync.
  uint64_t host_writes() const;
  // Called at the start of every block that a scan yields (from the scanning thread).
  void OnScan(std::function<void()> hook);

  // ---- Store
  uint64_t dictionary_epoch() const override;
  absl::StatusOr<std::vector<HostNumber>> UpsertHosts(std::span<const HostRecord> hosts) override;
  absl::StatusOr<uint64_t> DurableSeq(HostNumber host, uint64_t spool_epoch) const override;
  absl::StatusOr<std::vector<AppendResult>> Append(std::span<const IncomingBatch> batches) override;
  absl::Status AddDefinitions(HostNumber host, const v1::Definitions& definitions) override;
  absl::Status AddGap(HostNumber host, const v1::Gap& gap) override;
  absl::Status SkipTo(HostNumber host, uint64_t spool_epoch, uint64_t seq,
                      const v1::Gap& gap) override;
  absl::Status PutDirectives(const v1::ListDirectivesResponse::Set& set) override;
  absl::Status DeleteDirectives(std::string_view name) override;
  absl::StatusOr<std::vector<v1::ListDirectivesResponse::Set>> ListDirectives() const override;
  std::unique_ptr<ReadView> NewReadView() const override;
  absl::Status Upkeep(uint64_t now_unix_ns, uint64_t budget_ns) override;
  std::map<std::string, double> Gauges() const override;

 private:
  struct State;
  class View;
  HostNumber UpsertOne(const HostRecord& host) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  AppendResult AppendOne(const IncomingBatch& in) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Define(HostNumber host, const v1::Definitions& definitions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::unique_ptr<State> state_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_TESTING_FAKE_STORE_H_
