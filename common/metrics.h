// SPDX-License-Identifier: Apache-2.0
//
// Serves a Prometheus registry over HTTP at /metrics, together with what every
// daemon should tell of itself: process_cpu_seconds_total,
// process_resident_memory_bytes, process_open_fds, process_start_time_seconds
// and fleetblame_build_info. The registry may be used from any thread; scrapes
// run on two threads of the server's own.
#ifndef COMMON_METRICS_H_
#define COMMON_METRICS_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "prometheus/registry.h"

namespace prometheus {
class Exposer;
}

namespace fleetblame {

class MetricsServer {
 public:
  // `address` is "host:port", "[v6]:port", or a bare "port", which means
  // loopback: metrics name devices and processes, so other hosts see them only
  // when asked for. Port 0 takes a free one. InvalidArgument for any other
  // text, Unavailable when the address cannot be bound; both say what to do.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      std::string_view address, std::shared_ptr<prometheus::Registry> registry);

  // Takes up to two seconds: the HTTP server polls. Do what matters first.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  int port() const { return port_; }

 private:
  MetricsServer(std::unique_ptr<prometheus::Exposer> exposer,
                std::shared_ptr<prometheus::Registry> registry,
                std::shared_ptr<prometheus::Collectable> process, int port);

  // The exposer holds weak references; it goes first.
  std::shared_ptr<prometheus::Registry> registry_;
  std::shared_ptr<prometheus::Collectable> process_;
  std::unique_ptr<prometheus::Exposer> exposer_;
  int port_;
};

}  // namespace fleetblame

#endif  // COMMON_METRICS_H_
