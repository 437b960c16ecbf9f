// SPDX-License-Identifier: Apache-2.0
#include "aggregator/control/control_service.h"

#include <string>
#include <utility>

#include "common/log.h"
#include "common/selector/selector.h"
#include "proto/fleetblame/v1/control.grpc.pb.h"

namespace fleetblame::aggregator {
namespace {

// The codes of absl and gRPC are the same numbers.
grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

// A change waits for the disk, so it runs on a thread of gRPC's pool for synchronous services,
// never on those that serve the agents' streams.
class ControlService final : public v1::Control::Service {
 public:
  ControlService(DirectiveBook* book, CollectorService* collector)
      : book_(book), collector_(collector) {}

  grpc::Status SetDirectives(grpc::ServerContext* rpc, const v1::SetDirectivesRequest* request,
                             v1::SetDirectivesResponse* response) override {
    absl::StatusOr<Selector> selector = Selector::Parse(request->selector());
    if (!selector.ok()) return ToGrpc(selector.status());
    absl::StatusOr<uint64_t> revision =
        request->has_directives() ? book_->Set(*request) : book_->Delete(request->name());
    if (!revision.ok()) return ToGrpc(revision.status());
    LogInfo(request->has_directives() ? "directives set" : "directives deleted",
            {{"name", request->name()},
             {"selector", request->selector()},
             {"revision", *revision},
             {"peer", rpc->peer()}});
    collector_->PushDirectivesToAll();
    response->set_revision(*revision);
    response->set_hosts_matched(CountMatching(*selector));
    return grpc::Status::OK;
  }

  grpc::Status ListDirectives(grpc::ServerContext*, const v1::ListDirectivesRequest*,
                              v1::ListDirectivesResponse* response) override {
    for (v1::ListDirectivesResponse::Set& set : book_->List()) {
      *response->add_sets() = std::move(set);
    }
    return grpc::Status::OK;
  }

 private:
  uint32_t CountMatching(const Selector& selector) const {
    uint32_t count = 0;
    for (const auto& host : collector_->ConnectedHosts()) {
      if (selector.Matches(
              SelectorTarget{host->host_id, host->hostname, host->kernel_release, &host->labels})) {
        ++count;
      }
    }
    return count;
  }

  DirectiveBook* const book_;
  CollectorService* const collector_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewControlService(DirectiveBook* book, CollectorService* collector) {
  return std::make_unique<ControlService>(book, collector);
}

}  // namespace fleetblame::aggregator
