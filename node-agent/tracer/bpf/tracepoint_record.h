// SPDX-License-Identifier: Apache-2.0
//
// The record that a tracepoint makes for perf, as tracefs describes it: the way to what a
// tracepoint says when the kernel does not describe the types of its arguments.
//
// Threading: pure reads; safe from any thread. Offsets are bytes.
#ifndef NODE_AGENT_TRACER_BPF_TRACEPOINT_RECORD_H_
#define NODE_AGENT_TRACER_BPF_TRACEPOINT_RECORD_H_

#include <cstdint>
#include <istream>
#include <map>
#include <string>

namespace fleetblame::agent {

// Where each field lies in the record of a tracepoint; empty when there is none, or tracefs is not
// mounted. `system` is the folder of its events: for those of modules the module's name.
std::map<std::string, uint32_t> TracepointRecord(const std::string& system,
                                                 const std::string& tracepoint);

// The same from the contents of its "format" file.
std::map<std::string, uint32_t> ParseRecord(std::istream& format);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_TRACEPOINT_RECORD_H_
