// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/loop_files.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace fleetblame::agent {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::optional<LoopFile> Ask(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  loop_info64 info{};
  const bool told = ioctl(fd, LOOP_GET_STATUS64, &info) == 0;
  close(fd);
  // Filesystems without a device of their own have major number 0.
  if (!told || major(info.lo_device) == 0) return std::nullopt;
  return LoopFile{.filesystem = {major(info.lo_device), minor(info.lo_device)},
                  .inode = info.lo_inode,
                  .offset_bytes = info.lo_offset};
}

}  // namespace

std::optional<LoopFile> LoopFiles::Of(const std::string& name) {
  const std::string block = absl::StrCat(sys_block_, "/", name);
  const std::string file = ReadText(block + "/loop/backing_file");
  if (file.empty()) {
    known_.erase(name);
    return std::nullopt;
  }
  const std::string attached =
      absl::StrCat(file, ReadText(block + "/loop/offset"), ReadText(block + "/ro"));
  Known& known = known_[name];
  if (known.attached == attached) return known.file;
  known.attached = attached;
  known.file.reset();
  if (ReadText(block + "/ro") != "1\n") known.file = Ask(absl::StrCat(dev_, "/", name));
  return known.file;
}

}  // namespace fleetblame::agent
