// SPDX-License-Identifier: Apache-2.0
//
// Shares out the bytes of pages whose dirtying was not looked at (bpf/page_sample.bpf.h). Of these
// are known the file, the IOs that wrote them and how many there were; who dirtied them is
// estimated from those groups of pages of the same file that were looked at, each of which stands
// for a known number of groups. Where none was in this window, they go to the file's last known
// dirtier, as pages do of which nothing is recorded.
//
// Of very many, most IOs that wrote such pages are not looked at either (bpf/sample.bpf.h). What is
// charged for them, file and dirtier, is then always an estimate.
//
// Not thread-safe.
// Units: bytes and IOs as in RowValues; `stands_for` counts the sampled group itself too.
#ifndef NODE_AGENT_TRACER_BPF_UNSEEN_PAGES_H_
#define NODE_AGENT_TRACER_BPF_UNSEEN_PAGES_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "node-agent/tracer/bpf/skipped_ios.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

// Gives the bytes of a row of unseen pages to its dirtier (`inode`), or to nobody (`lost`).
Row ToLastDirtier(Row row);

// What one window says of pages that were looked at, and of those that were not.
class UnseenPages {
 public:
  // A row of pages that were looked at and that stand for others.
  void AddSample(const Row& row, uint64_t stands_for);

  // A row of pages that were not. Its dirtier is the last one known of the file, if any.
  void AddUnseen(Row row, uint64_t stands_for);

  // The same, of IOs that were not looked at, as they were charged to a sample.
  void AddSkipped(Sample charged);

  // Rows that add up to those given to AddUnseen, of confidence `estimated`, or else `inode` or
  // `lost`; and forgets everything. `losses` grow by the number of IOs that became `estimated` and
  // by its variance. That is an upper bound: an IO of many groups is taken for one of a single
  // group.
  std::vector<Row> Take(std::map<std::string, uint64_t>* losses);

 private:
  // Somebody who dirtied pages of a file.
  using Dirtier = std::pair<ActorId, StackId>;
  // A file of a device; several layers of devices may write the same one.
  using Place = std::pair<DeviceNumber, FileId>;

  struct Unseen {
    Row row;
    uint64_t stands_for;
    // The same of the IOs that wrote the pages; 0 = all of these were looked at.
    uint64_t ios_per_sample;
  };

  static Row WithoutSample(Unseen unseen, std::map<std::string, uint64_t>* losses);

  // Bytes for which each dirtier stands beyond what was seen of it.
  std::map<Place, std::map<Dirtier, uint64_t>> samples_;
  std::vector<Unseen> unseen_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_UNSEEN_PAGES_H_
