// SPDX-License-Identifier: Apache-2.0
//
// The few numbers that the spool must remember besides its records: what may have left the host,
// which number was given last, and when the last window ended. Written often, so it is a short
// log of frames of which the last sound one counts; a torn write loses only itself.
//
// Threading: one thread at a time.
#ifndef NODE_AGENT_SPOOL_SPOOL_STATE_H_
#define NODE_AGENT_SPOOL_SPOOL_STATE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node-agent/spool/file_layer.h"

namespace fleetblame::agent {

struct SpoolState {
  uint64_t spool_epoch = 0;
  uint64_t sent_seq = 0;  // no record above it ever left this host
  uint64_t last_seq = 0;  // highest number given to a record
  uint64_t last_window_end_boot_ns = 0;
  uint64_t last_window_end_unix_ns = 0;
  std::string boot_id;  // of the boot in which this was written
};

class SpoolStateFile {
 public:
  // Reads `path`; a missing or unreadable file yields a state of zeros.
  static absl::StatusOr<std::unique_ptr<SpoolStateFile>> Open(FileLayer& files, std::string path);

  const SpoolState& last() const { return last_; }

  // When it fails, the file is removed: after a crash no state is better than a stale one.
  absl::Status Write(const SpoolState& state);

 private:
  SpoolStateFile(FileLayer& files, std::string path) : files_(files), path_(std::move(path)) {}
  absl::Status Append(const std::string& frame);

  FileLayer& files_;
  const std::string path_;
  std::unique_ptr<AppendFile> file_;
  SpoolState last_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_SPOOL_SPOOL_STATE_H_
