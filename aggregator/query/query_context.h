// SPDX-License-Identifier: Apache-2.0
//
// What one query may cost, and whether it should go on: a budget of rows, bytes and groups, a time
// by which the answer must be out, and the client's patience. The first limit that is hit is
// remembered; everything that works for the query stops at its next look.
//
// The budget counts what is read, so that a query is refused for what it costs and not for what it
// returns. Time runs out a little before the client's own deadline: the client then gets a sentence
// that says how to narrow the question instead of a bare DEADLINE_EXCEEDED.
//
// Threading: every method may be called from any thread.
// Errors: RESOURCE_EXHAUSTED for budget and time, CANCELLED when the client is gone.
#ifndef AGGREGATOR_QUERY_QUERY_CONTEXT_H_
#define AGGREGATOR_QUERY_QUERY_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace fleetblame::aggregator {

struct QueryBudget {
  uint64_t max_rows = 60'000'000;
  // Of decoded blocks, estimated.
  uint64_t max_bytes = uint64_t{6} << 30;
  uint64_t max_groups = 500'000;
};

class QueryContext {
 public:
  // `cancelled` may be empty. It is asked from any thread, until the query is over.
  QueryContext(const QueryBudget& budget, absl::Time stop_at, std::function<bool()> cancelled);

  // Accounts for a block about to be looked at; false when the query must stop.
  bool Charge(uint64_t rows, uint64_t bytes);
  // Accounts for a new group; false when the query must stop.
  bool ChargeGroup();
  // Looks at clock and client; false when the query must stop.
  bool KeepGoing();

  // Ends the query with `status` unless it has failed before.
  void Fail(absl::Status status);
  // OK as long as the query may go on.
  absl::Status status() const;

  uint64_t rows() const { return rows_.load(std::memory_order_relaxed); }

 private:
  const QueryBudget budget_;
  const absl::Time stop_at_;
  const std::function<bool()> cancelled_;
  std::atomic<uint64_t> rows_{0};
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint64_t> groups_{0};
  std::atomic<bool> failed_{false};
  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_QUERY_CONTEXT_H_
