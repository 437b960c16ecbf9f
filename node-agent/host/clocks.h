// SPDX-License-Identifier: Apache-2.0
//
// The two clocks that windows are stamped with. Windows are cut by boot time, which neither jumps
// nor stops in suspend; realtime is only ever an offset to it.
//
// Threading: any.
#ifndef NODE_AGENT_HOST_CLOCKS_H_
#define NODE_AGENT_HOST_CLOCKS_H_

#include <cstdint>

namespace fleetblame::agent {

uint64_t BootTimeNs();
uint64_t RealTimeNs();
// realtime - boottime, read closely together.
int64_t RealtimeOffsetNs();

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_HOST_CLOCKS_H_
