// SPDX-License-Identifier: Apache-2.0
//
// Makes the tracer that the configuration asks for, with a recorder around it if wanted.
//
// Threading: one thread. Errors: as the tracers give them; each is a sentence for people.
#ifndef NODE_AGENT_PIPELINE_TRACER_FACTORY_H_
#define NODE_AGENT_PIPELINE_TRACER_FACTORY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "node-agent/config/config.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

// A replaying tracer never waits: the caller paces it (ReplayPacer).
absl::StatusOr<std::unique_ptr<Tracer>> CreateTracer(const AgentConfig& config);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_PIPELINE_TRACER_FACTORY_H_
