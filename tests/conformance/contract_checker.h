// SPDX-License-Identifier: Apache-2.0
//
// What the tracer contract (node-agent/tracer/tracer.h) promises of the data, as a machine that
// reads snapshots and trace records in their order and lists every broken promise in a sentence.
//
// Threading: one thread.
#ifndef TESTS_CONFORMANCE_CONTRACT_CHECKER_H_
#define TESTS_CONFORMANCE_CONTRACT_CHECKER_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "node-agent/tracer/tracer.h"

namespace fleetblame::testing {

class ContractChecker {
 public:
  explicit ContractChecker(const agent::TracerInfo& info) : info_(info) {}

  void CheckInfo();
  // In the order in which Collect gave them.
  void Check(const agent::Snapshot& snapshot);
  // Records polled since the last Check; their ids may be defined by the next one.
  void Check(const agent::TraceRecord& record);
  // After the last snapshot: what was promised for it and never came.
  void CheckEnd();

  // At most a hundred of them.
  const std::vector<std::string>& violations() const { return violations_; }

  // Sums over all snapshots.
  struct Totals {
    uint64_t recorded_bytes = 0;
    uint64_t lost_bytes = 0;
    uint64_t kernel_bytes = 0;
    uint64_t recorded_ios = 0;
    uint64_t kernel_ios = 0;
  };
  const std::map<std::pair<agent::DeviceNumber, agent::Operation>, Totals>& totals() const {
    return totals_;
  }
  uint64_t rows() const { return rows_; }
  uint64_t row_ios() const { return row_ios_; }
  uint64_t row_bytes() const { return row_bytes_; }
  uint64_t trace_records() const { return trace_records_; }
  uint64_t trace_bytes() const { return trace_bytes_; }

 private:
  void Violation(const std::string& sentence);
  void CheckDefinitions(const agent::Snapshot& snapshot);
  void CheckKey(const agent::RowKey& key);
  void CheckValues(const agent::RowKey& key, const agent::RowValues& values);
  void CheckHistogram(const char* what, const SparseHistogram& histogram, uint64_t ios,
                      uint64_t sum_ns);
  void CheckBooks(const agent::Snapshot& snapshot);
  void CheckIds(const char* who, agent::StackId dirtier_stack, agent::StackId issuer_stack,
                agent::ActorId dirtier_actor, agent::ActorId issuer_actor, agent::FileId file);

  const agent::TracerInfo info_;
  std::vector<std::string> violations_;
  std::map<std::pair<agent::DeviceNumber, agent::Operation>, Totals> totals_;
  std::set<agent::StackId> stacks_ = {agent::kNoStack, agent::kLostStack};
  std::set<agent::ActorId> actors_ = {agent::kNoActor};
  std::set<agent::FileId> files_ = {agent::kNoFile};
  std::vector<agent::TraceRecord> unresolved_;
  bool first_ = true;
  uint64_t last_end_boot_ns_ = 0;
  uint64_t rows_ = 0;
  uint64_t row_ios_ = 0;
  uint64_t row_bytes_ = 0;
  uint64_t trace_records_ = 0;
  uint64_t trace_bytes_ = 0;
};

}  // namespace fleetblame::testing

#endif  // TESTS_CONFORMANCE_CONTRACT_CHECKER_H_
