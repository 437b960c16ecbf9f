// SPDX-License-Identifier: Apache-2.0
#include "common/metrics.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/metrics_address.h"
#include "common/process_metrics.h"
#include "prometheus/exposer.h"

namespace fleetblame {
absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    std::string_view address, std::shared_ptr<prometheus::Registry> registry) {
  const absl::StatusOr<std::string> bind = MetricsBindAddress(address);
  if (!bind.ok()) return bind.status();
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(*bind);
    auto process = std::make_shared<ProcessMetrics>();
    exposer->RegisterCollectable(registry);
    exposer->RegisterCollectable(process);
    const auto ports = exposer->GetListeningPorts();
    const int port = ports.empty() ? 0 : ports.front();
    return std::unique_ptr<MetricsServer>(
        new MetricsServer(std::move(exposer), std::move(registry), std::move(process), port));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", *bind, ": ", error.what(),
                     "; is the port in use, or the address not of this host?"));
  }
}

MetricsServer::MetricsServer(std::unique_ptr<prometheus::Exposer> exposer,
                             std::shared_ptr<prometheus::Registry> registry,
                             std::shared_ptr<prometheus::Collectable> process, int port)
    : registry_(std::move(registry)),
      process_(std::move(process)),
      exposer_(std::move(exposer)),
      port_(port) {}

MetricsServer::~MetricsServer() = default;

}  // namespace fleetblame
