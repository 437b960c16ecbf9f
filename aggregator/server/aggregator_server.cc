// SPDX-License-Identifier: Apache-2.0
#include "aggregator/server/aggregator_server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "aggregator/control/control_service.h"
#include "aggregator/control/directive_book.h"
#include "aggregator/ingest/collector_service.h"
#include "aggregator/ingest/ingest_metrics.h"
#include "aggregator/query/query_service.h"
#include "aggregator/server/tls.h"
#include "aggregator/server/upkeep.h"
#include "aggregator/store/rocks_store.h"
#include "aggregator/trace_hub/trace_hub.h"
#include "common/log.h"
#include "common/metrics.h"
#include "grpc/impl/codegen/grpc_types.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace fleetblame::aggregator {
namespace {

constexpr char kCollectorName[] = "fleetblame.v1.Collector";
constexpr char kQueryName[] = "fleetblame.v1.Query";
constexpr char kControlName[] = "fleetblame.v1.Control";

// Streams get this long to settle what they sent, calls this long to end.
constexpr absl::Duration kDrainTimeout = absl::Seconds(10);
constexpr absl::Duration kCallTimeout = absl::Seconds(3);

// Of a connection with a stream that is quiet, measured.
constexpr uint64_t kConnectionBytes = 80 << 10;

// How one memory limit is shared out. The rest is the allocator's, code's and the stacks'.
struct MemoryShares {
  explicit MemoryShares(uint64_t limit)
      : inflight(limit / 4), grpc(limit / 4), block_cache(limit / 5), write_buffers(limit / 6) {}
  uint64_t inflight;
  uint64_t grpc;
  uint64_t block_cache;
  uint64_t write_buffers;
};

RocksStoreOptions StoreOptions(const ServerConfig& config) {
  MemoryShares shares(config.memory_limit_bytes);
  RocksStoreOptions options;
  options.path = config.data_dir;
  options.block_cache_bytes = shares.block_cache;
  options.write_buffer_bytes = shares.write_buffers;
  for (int level = 0; level < kLevels; ++level) {
    if (config.retention_ns[level] != 0) options.retention_ns[level] = config.retention_ns[level];
  }
  return options;
}

absl::Status CheckRetention(const ServerConfig& config) {
  const auto retention = StoreOptions(config).retention_ns;
  if (std::is_sorted(retention.begin(), retention.end())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "retention must not shrink from level to level (raw, 1m, 10m, 1h, 6h, 1d); "
      "raise the coarser ones too");
}

CollectorService::Options IngestOptions(const ServerConfig& config) {
  MemoryShares shares(config.memory_limit_bytes);
  CollectorService::Options options;
  options.limits.max_message_bytes = config.max_message_bytes;
  options.limits.max_rows_plain_bytes = 2 * config.max_message_bytes;
  options.limits.credit_bytes = 2 * config.max_message_bytes;
  options.limits.inflight_bytes = shares.inflight;
  options.limits.max_streams = config.max_agents;
  options.bind_hosts = !config.tls_client_ca.empty() && config.tls_bind_hosts;
  options.limits.stream_lifetime =
      absl::Nanoseconds(static_cast<int64_t>(config.stream_lifetime_ns));
  return options;
}

void SetChannelOptions(grpc::ServerBuilder& builder, const ServerConfig& config) {
  // Dead peers (a host that lost power, a broken NAT) are found by pings, and soon enough for their
  // successor not to be refused for long.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  // A stranger that only connects is let go.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 300'000);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 128);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);
  // Two servers on one port would each see half of the fleet.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  grpc::ResourceQuota quota("fleetblame");
  // What a quiet connection takes in any case must not count against those that send: a quota that
  // is used up by connections alone would leave none of them a buffer to read into.
  quota.Resize(MemoryShares(config.memory_limit_bytes).grpc + config.max_agents * kConnectionBytes);
  builder.SetResourceQuota(quota);
}

class Server final : public AggregatorServer {
 public:
  explicit Server(std::unique_ptr<Store> store)
      : registry_(std::make_shared<prometheus::Registry>()),
        store_(std::move(store)),
        hub_(TraceHub::Create({})),
        ingest_metrics_(registry_) {}
  ~Server() override { ShutDown(); }

  ExitCode Run(const ServerConfig& config, absl::Status* status) {
    absl::StatusOr<std::unique_ptr<DirectiveBook>> book =
        DirectiveBook::Open(store_.get(), hub_.get());
    if (!book.ok()) return *status = book.status(), kExitStore;
    book_ = *std::move(book);
    absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> credentials =
        NewServerCredentials({config.tls_cert, config.tls_key, config.tls_client_ca});
    if (!credentials.ok()) return *status = credentials.status(), kExitTls;

    CollectorService::Options options = IngestOptions(config);
    options.on_store_health = [this](bool writable) { SetServing(kCollectorName, writable); };
    collector_ =
        CollectorService::Create(store_.get(), hub_.get(), book_.get(), &ingest_metrics_, options);
    control_ = NewControlService(book_.get(), collector_.get());
    QueryOptions query_options;
    query_options.registry = registry_;
    query_ = CreateQueryService(store_.get(), hub_.get(), query_options);
    hub_->SetListener([this](const std::vector<std::string>& host_ids) {
      book_->TraceChanged();
      collector_->PushDirectives(host_ids);
    });

    *status = Listen(config, *credentials);
    if (!status->ok()) return kExitListen;
    *status = ServeMetrics(config);
    if (!status->ok()) return kExitListen;
    upkeep_ = std::make_unique<Upkeep>(store_.get(), hub_.get(), registry_, Upkeep::Options());
    for (const char* name : {kCollectorName, kQueryName, kControlName}) SetServing(name, true);
    return kExitOk;
  }

  int port() const override { return port_; }
  int metrics_port() const override {
    return metrics_server_ == nullptr ? 0 : metrics_server_->port();
  }

  void ShutDown() override {
    if (store_ == nullptr) return;
    if (server_ != nullptr) {
      grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
      if (health != nullptr) health->SetServingStatus(false);
    }
    if (collector_ != nullptr) collector_->ShutDown(kDrainTimeout);
    if (server_ != nullptr) server_->Shutdown(absl::ToChronoTime(absl::Now() + kCallTimeout));
    if (hub_ != nullptr) hub_->SetListener(nullptr);
    query_.reset();
    control_.reset();
    server_.reset();
    upkeep_.reset();
    // The last commits happen here.
    collector_.reset();
    book_.reset();
    metrics_server_.reset();
    store_.reset();
  }

 private:
  absl::Status Listen(const ServerConfig& config,
                      const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    grpc::ServerBuilder builder;
    SetChannelOptions(builder, config);
    builder.SetMaxReceiveMessageSize(collector_->max_receive_bytes());
    builder.AddListeningPort(config.listen, credentials, &port_);
    builder.RegisterService(collector_->service());
    builder.RegisterService(control_.get());
    builder.RegisterService(query_.get());
    errno = 0;
    server_ = builder.BuildAndStart();
    if (server_ != nullptr && (port_ != 0 || config.listen.rfind("unix:", 0) == 0)) {
      return absl::OkStatus();
    }
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", config.listen,
                     ": the port is in use or the address is not one of this machine; "
                     "stop the other program or choose another with --listen"));
  }

  absl::Status ServeMetrics(const ServerConfig& config) {
    if (config.metrics_address.empty()) return absl::OkStatus();
    absl::StatusOr<std::unique_ptr<MetricsServer>> started =
        MetricsServer::Start(config.metrics_address, registry_);
    if (!started.ok()) return started.status();
    metrics_server_ = *std::move(started);
    return absl::OkStatus();
  }

  void SetServing(const char* name, bool serving) {
    if (server_ == nullptr) return;
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    if (health != nullptr) health->SetServingStatus(name, serving);
  }

  std::shared_ptr<prometheus::Registry> registry_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<TraceHub> hub_;
  IngestMetrics ingest_metrics_;
  std::unique_ptr<DirectiveBook> book_;
  std::unique_ptr<CollectorService> collector_;
  std::unique_ptr<grpc::Service> control_;
  std::unique_ptr<grpc::Service> query_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<MetricsServer> metrics_server_;
  std::unique_ptr<Upkeep> upkeep_;
  int port_ = 0;
};

}  // namespace

std::unique_ptr<AggregatorServer> AggregatorServer::Start(const ServerConfig& config,
                                                          StartError* error) {
  // Cheap checks first: a store that is opened for nothing may have to be recovered first.
  error->exit_code = CheckStart(config, &error->status);
  if (error->exit_code != kExitOk) return nullptr;
  absl::StatusOr<std::unique_ptr<Store>> store = OpenRocksStore(StoreOptions(config));
  if (!store.ok()) {
    *error = {kExitStore, store.status()};
    return nullptr;
  }
  return StartWith(*std::move(store), config, error);
}

std::unique_ptr<AggregatorServer> AggregatorServer::StartWith(std::unique_ptr<Store> store,
                                                              const ServerConfig& config,
                                                              StartError* error) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto server = std::make_unique<Server>(std::move(store));
  error->exit_code = server->Run(config, &error->status);
  if (error->exit_code != kExitOk) return nullptr;
  return server;
}

ExitCode CheckStart(const ServerConfig& config, absl::Status* status) {
  *status = CheckRetention(config);
  if (!status->ok()) return kExitUsage;
  *status = CheckTlsFiles({config.tls_cert, config.tls_key, config.tls_client_ca});
  if (!status->ok()) return kExitTls;
  struct stat info;
  if (stat(config.data_dir.c_str(), &info) == 0) {
    const char* what = !S_ISDIR(info.st_mode)                              ? "it is not a directory"
                       : access(config.data_dir.c_str(), W_OK | X_OK) != 0 ? std::strerror(errno)
                                                                           : nullptr;
    if (what != nullptr) {
      *status = absl::FailedPreconditionError(
          absl::StrCat("cannot write to ", config.data_dir, ": ", what,
                       "; give a directory of the aggregator's own with --data-dir"));
      return kExitStore;
    }
  }
  return kExitOk;
}

absl::Status RepairStore(const ServerConfig& config) {
  return RepairRocksStore(StoreOptions(config));
}

}  // namespace fleetblame::aggregator
