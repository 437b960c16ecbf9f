// SPDX-License-Identifier: Apache-2.0
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>

#include <limits>

#include "tests/groundtruth/writer_modes.h"

namespace fleetblame::testing {
namespace {

// Tells the disk which blocks of the mounted filesystem are free. What newer kernels return is not
// how much that was, so half of what is free must do as the least.
uint64_t Trim(const Options& o) {
  File directory(o.path, O_RDONLY | O_DIRECTORY);
  fstrim_range range{};
  range.len = std::numeric_limits<uint64_t>::max();
  directory.Check(ioctl(directory.fd(), FITRIM, &range) == 0, "trim");
  struct statvfs filesystem {};
  directory.Check(fstatvfs(directory.fd(), &filesystem) == 0, "look at the free space of");
  return filesystem.f_bfree * filesystem.f_frsize / 2;
}

// Asks for durability of what is durable already, `files` times.
uint64_t Flush(const Options& o) {
  File file(o.path, O_RDWR);
  for (uint32_t i = 0; i < o.files; ++i) file.Check(fsync(file.fd()) == 0, "fsync");
  return 0;
}

// One read, at `offset`, that no cache answers.
uint64_t ReadSome(const Options& o) {
  File device(o.path, O_RDONLY | O_DIRECT);
  Buffer buffer(kPage);
  device.Check(pread(device.fd(), buffer.data(), kPage, static_cast<off_t>(o.offset)) ==
                   static_cast<ssize_t>(kPage),
               "read");
  return 0;
}

uint64_t OnRange(const Options& o, unsigned long request, const char* what) {
  File device(o.path, O_RDWR);
  uint64_t range[2] = {o.offset, o.bytes};
  device.Check(ioctl(device.fd(), request, range) == 0, what);
  return o.bytes;
}

}  // namespace

Modes DeviceModes() {
  return {
      {"trim", Trim},
      {"flush", Flush},
      {"read-some", ReadSome},
      {"discard", [](const Options& o) { return OnRange(o, BLKDISCARD, "discard"); }},
      {"secure-erase", [](const Options& o) { return OnRange(o, BLKSECDISCARD, "erase"); }},
      {"write-zeroes", [](const Options& o) { return OnRange(o, BLKZEROOUT, "zero"); }},
  };
}

}  // namespace fleetblame::testing
