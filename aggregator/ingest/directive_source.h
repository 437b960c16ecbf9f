// SPDX-License-Identifier: Apache-2.0
//
// Who knows what an agent is to do: what streams need of aggregator/control.
//
// Threading: any thread.
#ifndef AGGREGATOR_INGEST_DIRECTIVE_SOURCE_H_
#define AGGREGATOR_INGEST_DIRECTIVE_SOURCE_H_

#include "aggregator/store/store.h"
#include "proto/fleetblame/v1/control.pb.h"

namespace fleetblame::aggregator {

class DirectiveSource {
 public:
  virtual ~DirectiveSource() = default;
  // Everything that holds for this host now, trace mode included.
  virtual v1::Directives For(const HostRecord& host) const = 0;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_INGEST_DIRECTIVE_SOURCE_H_
