// SPDX-License-Identifier: Apache-2.0
//
// Why the kernel's flushers wrote how much, by the kernel's own account: the tracepoints
// writeback_start and writeback_written, read through tracefs. It has a trace buffer of its own
// there, which goes with the object.
//
// Not thread-safe. Pages are of the machine's size. UNIMPLEMENTED where tracefs is not to be had.
#ifndef TESTS_GROUNDTRUTH_WRITEBACK_LOG_H_
#define TESTS_GROUNDTRUTH_WRITEBACK_LOG_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::testing {

class WritebackLog {
 public:
  static absl::StatusOr<std::unique_ptr<WritebackLog>> Begin();
  ~WritebackLog();
  WritebackLog(const WritebackLog&) = delete;
  WritebackLog& operator=(const WritebackLog&) = delete;

  // Pages by reason that have been written to these disks since then.
  std::map<std::string, uint64_t> Pages(const std::vector<agent::DeviceNumber>& disks) const;

 private:
  explicit WritebackLog(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

}  // namespace fleetblame::testing

#endif  // TESTS_GROUNDTRUTH_WRITEBACK_LOG_H_
