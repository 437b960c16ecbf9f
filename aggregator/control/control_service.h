// SPDX-License-Identifier: Apache-2.0
//
// The Control service: operators set, clear and list directives; connected agents hear at once.
//
// Threading: any thread.
#ifndef AGGREGATOR_CONTROL_CONTROL_SERVICE_H_
#define AGGREGATOR_CONTROL_CONTROL_SERVICE_H_

#include <memory>

#include "aggregator/control/directive_book.h"
#include "aggregator/ingest/collector_service.h"
#include "grpcpp/impl/service_type.h"

namespace fleetblame::aggregator {

// Both must outlive the service.
std::unique_ptr<grpc::Service> NewControlService(DirectiveBook* book, CollectorService* collector);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_CONTROL_CONTROL_SERVICE_H_
