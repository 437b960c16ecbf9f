// SPDX-License-Identifier: Apache-2.0
//
// What the modes of the writer program share: its options, and files and buffers whose every error
// ends the process with a message. Bytes throughout; one thread unless a mode says otherwise.
#ifndef TESTS_GROUNDTRUTH_WRITER_MODES_H_
#define TESTS_GROUNDTRUTH_WRITER_MODES_H_

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>

namespace fleetblame::testing {

constexpr size_t kPage = 4096;

struct Options {
  std::string mode;
  std::string comm;
  std::string path;
  uint64_t bytes = 1 << 20;
  uint64_t offset = 0;
  uint64_t block = kPage;
  uint64_t stride = 0;  // from one block to the next; 0 = block
  uint32_t files = 100;
  std::string cgroup;  // joined first
  std::string then;    // mode exec: the name after it
  uint64_t limit = 0;  // modes that outgrow the memory of their cgroup: that memory
};

[[noreturn]] inline void Die(const char* what, const std::string& path) {
  std::fprintf(stderr, "writer: %s %s: %s\n", what, path.c_str(), std::strerror(errno));
  std::exit(1);
}

class File {
 public:
  File(const std::string& path, int flags) : path_(path), fd_(open(path.c_str(), flags, 0644)) {
    if (fd_ < 0) Die("open", path);
  }
  ~File() { close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  void Check(bool good, const char* what) const {
    if (!good) Die(what, path_);
  }

 private:
  std::string path_;
  int fd_;
};

// A page-aligned buffer that no filesystem can compress or leave out.
class Buffer {
 public:
  explicit Buffer(size_t size) : size_(size) {
    data_ = static_cast<char*>(std::aligned_alloc(kPage, (size + kPage - 1) / kPage * kPage));
    if (data_ == nullptr) Die("allocate", "a buffer");
    std::mt19937_64 random(size);
    for (size_t i = 0; i + 8 <= size; i += 8) {
      const uint64_t value = random();
      std::memcpy(data_ + i, &value, 8);
    }
  }
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  char* data() { return data_; }
  size_t size() const { return size_; }

 private:
  size_t size_;
  char* data_;
};

// Each returns the bytes of file data that it moved.
using Modes = std::map<std::string, std::function<uint64_t(const Options&)>>;
Modes CallModes();    // ways to hand data to the kernel: io_uring, splice, copy_file_range ...
Modes ChangeModes();  // files that change before they reach the disk; names, links, attributes
Modes MemoryModes();  // threads, exec, memory that is swapped out
Modes DeviceModes();  // without a filesystem's help: whole disks, discards

}  // namespace fleetblame::testing

#endif  // TESTS_GROUNDTRUTH_WRITER_MODES_H_
