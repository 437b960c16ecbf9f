// SPDX-License-Identifier: Apache-2.0
//
// The query service as a client sees it: a real gRPC server in this process over a FakeStore, and a
// small world that tests agree on. Belongs to one test.
#ifndef AGGREGATOR_QUERY_TESTING_QUERY_FIXTURE_H_
#define AGGREGATOR_QUERY_TESTING_QUERY_FIXTURE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "aggregator/query/query_service.h"
#include "aggregator/store/testing/fake_store.h"
#include "aggregator/trace_hub/trace_hub.h"
#include "grpcpp/grpcpp.h"
#include "proto/fleetblame/v1/query.grpc.pb.h"

namespace fleetblame::aggregator {

inline constexpr uint64_t kSecond = 1'000'000'000;
inline constexpr uint64_t kMinute = 60 * kSecond;
inline constexpr uint64_t kHour = 60 * kMinute;
// 2023-11-15 00:00:00 UTC, the beginning of a day.
inline constexpr uint64_t kDawn = 1'700'006'400 * kSecond;

class QueryFixture {
 public:
  explicit QueryFixture(QueryOptions options = {}, TraceHub::Limits hub_limits = {});
  ~QueryFixture();

  FakeStore& store() { return store_; }
  TraceHub& hub() { return *hub_; }
  v1::Query::Stub& stub() { return *stub_; }
  // What the service takes as the present; kDawn + 2 h at first.
  uint64_t now = kDawn + 2 * kHour;

  HostNumber Host(const std::string& host_id, std::map<std::string, std::string> labels = {},
                  const std::string& kernel = "6.1.0", int64_t skew_ns = 0);
  // An intent whose id begins with `hex` (the rest is zeros).
  IntentNumber Intent(const std::string& hex, std::vector<std::string> frames,
                      const std::string& modifier = "");
  ActorNumber Actor(const std::string& comm, const std::string& cgroup = "");
  DeviceNumber Device(const std::string& name, const std::string& serial = "");
  FileNumber File(const std::string& path, uint64_t inode = 1);

  // A call with a deadline, so that no test hangs.
  static void Prepare(grpc::ClientContext* context);
  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (v1::Query::Stub::*rpc)(grpc::ClientContext*, const Request&,
                                                         Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    Prepare(&context);
    return ((*stub_).*rpc)(&context, request, response);
  }

 private:
  FakeStore store_;
  std::unique_ptr<TraceHub> hub_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Query::Stub> stub_;
};

// A write of `bytes` in `ios` IOs, charged EXACT; set what else a test needs.
BlockRow Write(IntentNumber dirtier, ActorNumber actor, DeviceNumber device, uint64_t ios,
               uint64_t bytes);

v1::TimeRange Range(uint64_t start_unix_ns, uint64_t end_unix_ns);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_TESTING_QUERY_FIXTURE_H_
