// SPDX-License-Identifier: Apache-2.0
//
// Tag starvation on this host, one window at a time: reads what bpf/tagwait.bpf.c sums up and adds
// what sysfs says of the controllers. docs/tagwait.md tells how waits are seen.
//
// In the TagWaits that this makes, `intent` is a StackId, `actor` an ActorId and a device
// major << 20 | minor, as Snapshot::tag_waits says.
//
// Threading: one thread. Units: as in tagwait.proto.
// Errors: FAILED_PRECONDITION when this kernel gives no way to see tag waits.
#ifndef NODE_AGENT_TRACER_TAGWAIT_TAG_WAIT_TRACER_H_
#define NODE_AGENT_TRACER_TAGWAIT_TAG_WAIT_TRACER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "bpf/tagwait_abi.h"
#include "node-agent/tracer/tagwait/tag_programs.h"
#include "proto/fleetblame/v1/tagwait.pb.h"

namespace fleetblame::agent {

class TagWaitTracer {
 public:
  static absl::StatusOr<std::unique_ptr<TagWaitTracer>> Create(const TagProgramOptions& options,
                                                               const KernelBtf& kernel);

  // Ends the window. Adds to `losses`, and to `stacks` and `actors` what the rows name, as the
  // kernel numbers them.
  absl::Status Collect(v1::TagWaits* out, std::map<std::string, uint64_t>* losses,
                       std::set<uint32_t>* stacks, std::set<uint32_t>* actors);

  // Number of return addresses at the innermost end of a wait's stack that belong to the block
  // layer's own way to the tags.
  size_t InnerFrames(const uint64_t* addresses, size_t count) const;

  v1::TagWaitSource source() const { return programs_->source(); }
  const TagPrograms& programs() const { return *programs_; }
  // One sentence on what this source costs in accuracy; empty for the best.
  std::string Limitation() const;

 private:
  struct RowLess {
    bool operator()(const fb_tag_key& a, const fb_tag_key& b) const;
  };
  struct HolderLess {
    bool operator()(const fb_tag_holder_key& a, const fb_tag_holder_key& b) const;
  };
  // What an entry of a kernel table was when it was last read.
  template <typename Value>
  struct Seen {
    Value value{};
    uint32_t changed = 0;  // window
  };

  explicit TagWaitTracer(std::unique_ptr<TagPrograms> programs);
  absl::Status ReadRows(v1::TagWaits* out, std::set<uint32_t>* stacks, std::set<uint32_t>* actors);
  absl::Status ReadHolders(v1::TagWaits* out);
  absl::Status ReadOpenWaits(v1::TagWaits* out, std::set<uint32_t>* stacks,
                             std::set<uint32_t>* actors);
  absl::Status ReadSets(v1::TagWaits* out);
  void ReadDisks(v1::TagWaits* out);
  void ReadCounters(std::map<std::string, uint64_t>* losses);
  uint32_t SetNumber(uint64_t address);
  v1::TagWaitRow RowOf(const fb_tag_key& key);

  std::unique_ptr<TagPrograms> programs_;
  uint32_t window_ = 1;
  std::map<fb_tag_key, Seen<fb_tag_row>, RowLess> rows_;
  std::map<fb_tag_holder_key, Seen<fb_tag_holder>, HolderLess> holders_;
  std::map<uint64_t, uint32_t> set_numbers_;
  std::map<uint32_t, uint32_t> set_of_disk_;  // of this window
  std::vector<uint64_t> counters_seen_;
  uint64_t missed_seen_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> inner_functions_;  // [first, last)
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_TAGWAIT_TAG_WAIT_TRACER_H_
