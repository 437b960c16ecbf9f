// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <sys/prctl.h>

#include <thread>
#include <vector>

#include "tests/groundtruth/writer_modes.h"

namespace fleetblame::testing {
namespace {

// Four threads, each with a quarter of the file.
uint64_t Threads(const Options& o) {
  File file(o.path, O_WRONLY | O_CREAT);
  constexpr uint64_t kThreads = 4;
  const uint64_t part = o.bytes / kThreads;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Buffer buffer(o.block);
      for (uint64_t done = 0; done < part; done += o.block) {
        file.Check(pwrite(file.fd(), buffer.data(), o.block, static_cast<off_t>(t * part + done)) ==
                       static_cast<ssize_t>(o.block),
                   "pwrite");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return o.bytes;
}

// Writes a file, becomes another program in the same process, and writes a second one.
uint64_t Exec(const Options& o) {
  {
    File file(o.path, O_WRONLY | O_CREAT);
    Buffer buffer(o.block);
    for (uint64_t done = 0; done < o.bytes; done += o.block) {
      file.Check(write(file.fd(), buffer.data(), o.block) == static_cast<ssize_t>(o.block),
                 "write");
    }
  }
  const std::string second = o.path + ".after";
  const std::string bytes = std::to_string(o.bytes);
  const std::string block = std::to_string(o.block);
  execl("/proc/self/exe", "writer", "--comm", o.then.c_str(), "--mode", "write", "--path",
        second.c_str(), "--bytes", bytes.c_str(), "--block", block.c_str(), nullptr);
  Die("execute", "/proc/self/exe");
}

// Fills more memory than its cgroup has. What must have gone to the swap is the difference, less a
// little that the process needs.
uint64_t Swap(const Options& o) {
  char* memory = static_cast<char*>(
      mmap(nullptr, o.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (memory == MAP_FAILED) Die("allocate", "memory");
  madvise(memory, o.bytes, MADV_NOHUGEPAGE);
  Buffer buffer(kPage);
  for (uint64_t at = 0; at < o.bytes; at += kPage) std::memcpy(memory + at, buffer.data(), kPage);
  munmap(memory, o.bytes);
  return o.bytes > o.limit ? (o.bytes - o.limit) / 8 * 7 : 0;
}

}  // namespace

Modes MemoryModes() { return {{"threads", Threads}, {"exec", Exec}, {"swap", Swap}}; }

}  // namespace fleetblame::testing
