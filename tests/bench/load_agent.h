// SPDX-License-Identifier: Apache-2.0
//
// One agent of a load generator: a stream that keeps some batches under way, or sends one at a set
// pace, and counts what the aggregator acknowledged.
//
// Threading: gRPC's callback threads drive it; the counters may be read from any thread.
#ifndef TESTS_BENCH_LOAD_AGENT_H_
#define TESTS_BENCH_LOAD_AGENT_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"
#include "tests/bench/synthetic_fleet.h"

namespace fleetblame::bench {

struct LoadCounters {
  std::atomic<uint64_t> registered{0};
  std::atomic<uint64_t> rows_acked{0};
  std::atomic<uint64_t> batches_acked{0};
  std::atomic<uint64_t> batch_bytes_sent{0};
  std::atomic<uint64_t> rows_sent{0};
  std::atomic<uint64_t> rejects{0};
  std::atomic<uint64_t> needs{0};
  std::atomic<uint64_t> streams_ended{0};
  std::atomic<uint64_t> ack_latency_us_sum{0};
  std::atomic<uint64_t> ack_latency_us_max{0};
};

class LoadAgent final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // `fleet` and `counters` must outlive it. `batches_under_way` 0: one batch for each Tick.
  LoadAgent(const SyntheticFleet* fleet, int index, int batches_under_way,
            std::shared_ptr<grpc::Channel> channel, LoadCounters* counters);
  void Start();
  // Paced mode: another batch may go.
  void Tick();
  // Sends nothing more and ends the stream; AwaitDone then waits for gRPC to let go.
  void Stop();
  void AwaitDone();

  void OnWriteDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  struct UnderWay {
    uint64_t seq;
    uint64_t rows;
    absl::Time sent;
  };
  void SendNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Write(const std::string& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Acknowledged(uint64_t durable_seq) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<grpc::Channel> channel_;
  const int batches_under_way_;
  LoadCounters* const counters_;
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_;

  absl::Mutex mu_;
  SyntheticHost host_ ABSL_GUARDED_BY(mu_);
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mu_);
  bool registered_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  int due_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<UnderWay> under_way_ ABSL_GUARDED_BY(mu_);
};

}  // namespace fleetblame::bench

#endif  // TESTS_BENCH_LOAD_AGENT_H_
