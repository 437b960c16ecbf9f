// SPDX-License-Identifier: Apache-2.0
//
// A network block device for tests whose server is a thread of the test itself, under a name of its
// own: it reads and writes a file, and talks to the kernel over a socket pair. Ends with the
// object; a killed process takes server and device with it.
//
// Not thread-safe. Sizes are bytes. Errors say what was tried.
#ifndef TESTS_GROUNDTRUTH_NBD_DISK_H_
#define TESTS_GROUNDTRUTH_NBD_DISK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace fleetblame::testing {

class NbdDisk {
 public:
  // Why there can be none here; empty when there can.
  static std::string Unavailable();

  // Makes the file `path`, and a server called `comm` that serves it on the first free device.
  static absl::StatusOr<std::unique_ptr<NbdDisk>> Create(const std::string& path, uint64_t bytes,
                                                         const std::string& comm);
  ~NbdDisk();
  NbdDisk(const NbdDisk&) = delete;
  NbdDisk& operator=(const NbdDisk&) = delete;

  const std::string& name() const { return name_; }  // "nbd0"

 private:
  NbdDisk() = default;
  absl::Status Configure(uint64_t bytes);
  absl::Status WaitUntilServed() const;

  std::string name_;
  int file_ = -1;
  int device_ = -1;
  int kernel_end_ = -1;
  int server_end_ = -1;
  std::thread server_;
  std::thread driver_;  // lends itself to the driver for as long as the device lives
};

}  // namespace fleetblame::testing

#endif  // TESTS_GROUNDTRUTH_NBD_DISK_H_
