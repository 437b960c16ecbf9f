// SPDX-License-Identifier: Apache-2.0
//
// How an IO is written down: operation and flags as letters in the manner of blktrace, and the
// block layer's errors as errno.
//
// Threading: pure.
#ifndef NODE_AGENT_TRACER_BPF_RWBS_H_
#define NODE_AGENT_TRACER_BPF_RWBS_H_

#include <cstdint>
#include <string>

namespace fleetblame::agent {

// F (preflush), then R, W, D (discard), DE (secure erase), WZ (zeroes), F (flush) or N, then F
// (forced unit access), A (read ahead), S (sync), M (metadata). `op` is an fb_op.
std::string RwbsText(uint8_t op, uint32_t opf);

// blk_status_t, or already an errno on kernels before 5.16, as positive errno; 0 = no error.
int32_t BlockErrorNumber(uint32_t error);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_RWBS_H_
