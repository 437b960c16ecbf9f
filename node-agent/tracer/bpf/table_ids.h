// SPDX-License-Identifier: Apache-2.0
//
// Ids of actors and acts as the kernel side makes them: an index into a table, and a generation
// that changes when the place is given to another, so that an old id never names somebody else.
//
// Pure functions.
#ifndef NODE_AGENT_TRACER_BPF_TABLE_IDS_H_
#define NODE_AGENT_TRACER_BPF_TABLE_IDS_H_

#include <cstdint>

#include "bpf/fleetblame_abi.h"

namespace fleetblame::agent {

inline uint32_t IdIndex(uint32_t id) { return id & FB_ID_INDEX_MASK; }
// The next id for the same place.
inline uint32_t NextGeneration(uint32_t id) { return id + (1u << FB_ID_INDEX_BITS); }

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_TABLE_IDS_H_
