// SPDX-License-Identifier: Apache-2.0
//
// From what the tracer says to what goes over the wire: takes the snapshots of one window, replaces
// local ids by dictionary numbers, sums equal rows, keeps the files that matter, and cuts the
// result into batches.
//
// Threading: the thread that calls Tracer::Collect. Bounded: a window never holds more than
// max_rows rows (twice as many while it is being built); what detail that costs is counted as the
// loss "rows_folded", and files beyond max_files as "files_folded".
#ifndef NODE_AGENT_COMPACT_COMPACTOR_H_
#define NODE_AGENT_COMPACT_COMPACTOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "node-agent/compact/batch_cutter.h"
#include "node-agent/compact/local_names.h"
#include "node-agent/compact/row_merger.h"
#include "node-agent/dictionary/dictionary.h"
#include "node-agent/tracer/tracer.h"
#include "proto/fleetblame/v1/collector.pb.h"

namespace fleetblame::agent {

struct CompactorOptions {
  size_t max_rows = 20000;  // a window
  size_t max_files = 256;   // a window
  CutLimits cut;
  std::string boot_id;
};

class Compactor {
 public:
  // Both must outlive this object.
  Compactor(LocalNames* names, Dictionary* dictionary, const CompactorOptions& options);

  // Adds a snapshot to the current window.
  void Add(const Snapshot& snapshot);

  // Whether a window is under way.
  bool empty() const { return !started_; }
  uint64_t start_boot_ns() const { return start_boot_ns_; }

  // From now on at most so many files a window (load shedding); 0 = none.
  void set_max_files(size_t max_files) { options_.max_files = max_files; }

  struct Extras {
    int64_t realtime_offset_ns = 0;
    std::map<std::string, uint64_t> losses;  // of the agent itself
    std::vector<v1::Gap> gaps;
  };
  // Ends the window: its batches, without sequence numbers. At least one, even if nothing happened.
  std::vector<v1::Batch> Finish(const Extras& extras);

  // Rows handed to Finish so far.
  uint64_t rows() const { return total_rows_; }

 private:
  struct WindowFile {
    std::shared_ptr<const v1::File> file;
    uint64_t bytes = 0;
  };
  uint32_t WindowFileIndex(FileId id);
  void AddRow(const Row& row);
  void AddBooks(const Books& books);
  void AddTagWaits(v1::TagWaits waits);
  uint64_t FoldFiles();

  LocalNames* const names_;
  Dictionary* const dictionary_;
  CompactorOptions options_;

  bool started_ = false;
  uint64_t start_boot_ns_ = 0;
  uint64_t end_boot_ns_ = 0;
  RowMerger rows_;  // `file` is an index into window_files_, from 1
  std::vector<WindowFile> window_files_;
  absl::flat_hash_map<const v1::File*, uint32_t> window_file_index_;
  std::map<std::pair<DeviceNumber, Operation>, Books> books_;
  std::map<std::string, uint64_t> losses_;
  v1::TagWaits tag_waits_;
  uint64_t rows_folded_ = 0;
  uint64_t unknown_ids_before_ = 0;
  uint64_t total_rows_ = 0;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_COMPACT_COMPACTOR_H_
