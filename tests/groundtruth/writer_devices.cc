// SPDX-License-Identifier: Apache-2.0
#include <linux/fs.h>
#include <sys/ioctl.h>

#include <limits>

#include "tests/groundtruth/writer_modes.h"

namespace fleetblame::testing {
namespace {

// Tells the disk which blocks of the mounted filesystem are free.
uint64_t Trim(const Options& o) {
  File directory(o.path, O_RDONLY | O_DIRECTORY);
  fstrim_range range{};
  range.len = std::numeric_limits<uint64_t>::max();
  directory.Check(ioctl(directory.fd(), FITRIM, &range) == 0, "trim");
  return range.len;
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
      {"discard", [](const Options& o) { return OnRange(o, BLKDISCARD, "discard"); }},
      {"write-zeroes", [](const Options& o) { return OnRange(o, BLKZEROOUT, "zero"); }},
  };
}

}  // namespace fleetblame::testing
