// SPDX-License-Identifier: Apache-2.0
//
// The bios on their way, as user space sees them: those in the sets of few places, and those that
// went to the hash map because their set was full.
//
// Threading: one thread; the kernel side adds and removes at any time. A bio that ends while this
// looks at it is left to the kernel side: it is removed here only if it is still the same one.
// Errors: what cannot be read is passed over.
#ifndef NODE_AGENT_TRACER_BPF_BIO_TABLE_H_
#define NODE_AGENT_TRACER_BPF_BIO_TABLE_H_

#include <functional>

#include "absl/status/status.h"
#include "bpf/fleetblame_abi.h"
#include "node-agent/tracer/bpf/map_io.h"

struct fleetblame_bpf;

namespace fleetblame::agent {

class BioTable {
 public:
  explicit BioTable(fleetblame_bpf* skeleton) : skeleton_(skeleton) {}

  absl::Status Start();

  // Visits each bio that is filled in.
  void Visit(const std::function<void(const fb_origin&)>& visit);

  // Takes out those that match, and tells which were.
  void Remove(const std::function<bool(const fb_origin&)>& match,
              const std::function<void(const fb_origin&)>& removed);

 private:
  void RemoveFromSets(const std::function<bool(const fb_origin&)>& match,
                      const std::function<void(const fb_origin&)>& removed);
  void RemoveSpilled(const std::function<bool(const fb_origin&)>& match,
                     const std::function<void(const fb_origin&)>& removed);

  fleetblame_bpf* const skeleton_;
  MappedArray<fb_bio_bucket> buckets_;  // empty where the kernel cannot use them
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_BIO_TABLE_H_
