// SPDX-License-Identifier: Apache-2.0
//
// Batches between socket and disk, used again. A batch is dozens of columns; filling old ones saves
// the allocator about as much time as parsing takes. What is kept idle is bounded.
//
// Threading: any thread. The pool must outlive what it gave out.
#ifndef AGGREGATOR_INGEST_BATCH_POOL_H_
#define AGGREGATOR_INGEST_BATCH_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "aggregator/ingest/byte_budget.h"
#include "proto/fleetblame/v1/collector.pb.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::aggregator {

// Memory of a parsed message of small texts and maps, estimated from its serialized size: asking
// each map node would cost more than parsing them did.
inline uint64_t ParsedBytes(const google::protobuf::MessageLite& message) {
  return 8 * message.ByteSizeLong();
}

struct DecodedBatch {
  v1::Batch batch;  // once decoded, its `rows` are empty: they are below
  v1::RowBlock rows;
  uint64_t wire_bytes = 0;  // of the message it came in; what the agent's credit counts
  ByteBudget::Lease lease;
  uint64_t round = 0;  // the session's; see agent_session.h

  uint64_t MemoryBytes() const {
    return sizeof(DecodedBatch) + ParsedBytes(batch) + rows.SpaceUsedLong();
  }
};

class BatchPool {
 public:
  struct Limits {
    size_t idle_bytes = 32 << 20;       // of all that wait to be used again
    size_t idle_batch_bytes = 1 << 20;  // larger ones are freed at once
  };
  struct Recycle {
    BatchPool* pool = nullptr;  // null: plain delete
    void operator()(DecodedBatch* batch) const;
  };
  using Ptr = std::unique_ptr<DecodedBatch, Recycle>;

  BatchPool() = default;
  explicit BatchPool(const Limits& limits) : limits_(limits) {}

  // An empty batch.
  Ptr Get();
  size_t idle() const;

 private:
  struct Idle {
    std::unique_ptr<DecodedBatch> batch;
    size_t bytes;
  };
  void Return(std::unique_ptr<DecodedBatch> batch);

  const Limits limits_ = Limits();
  mutable absl::Mutex mu_;
  std::vector<Idle> idle_ ABSL_GUARDED_BY(mu_);
  size_t idle_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

using DecodedBatchPtr = BatchPool::Ptr;

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_BATCH_POOL_H_
