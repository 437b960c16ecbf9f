// SPDX-License-Identifier: Apache-2.0
//
// The process that does what a scenario says, under a name of its own (its comm), so that the
// tracer can be asked who it was. Prints the bytes of file data that it wrote (or read). One mode
// is one way of moving data; each block is written exactly once unless the mode's comment says
// otherwise.
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/groundtruth/writer_modes.h"

namespace fleetblame::testing {
namespace {

std::vector<uint64_t> ShuffledBlocks(const Options& o) {
  std::vector<uint64_t> blocks(o.bytes / o.block);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64(o.bytes));
  return blocks;
}

// A whole block. In a small memory cgroup the kernel may take only a part, or nothing (ENOMEM), until
// it has written some pages back.
bool WriteAll(int fd, const char* data, size_t bytes) {
  constexpr int kMostRetries = 500;
  for (int retries = 0; bytes > 0;) {
    const ssize_t written = write(fd, data, bytes);
    if (written > 0) {
      data += written;
      bytes -= static_cast<size_t>(written);
    } else if (written == 0 || errno != ENOMEM || ++retries > kMostRetries) {
      return false;
    } else {
      usleep(10'000);
    }
  }
  return true;
}

uint64_t Write(const Options& o, int extra_flags) {
  File file(o.path, O_WRONLY | O_CREAT | extra_flags);
  Buffer buffer(o.block);
  file.Check(lseek(file.fd(), static_cast<off_t>(o.offset), SEEK_SET) >= 0, "seek");
  for (uint64_t done = 0; done < o.bytes; done += o.block) {
    file.Check(WriteAll(file.fd(), buffer.data(), o.block), "write");
  }
  return o.bytes;
}

uint64_t Pwrite(const Options& o, int extra_flags) {
  File file(o.path, O_WRONLY | O_CREAT | extra_flags);
  Buffer buffer(o.block);
  for (uint64_t block : ShuffledBlocks(o)) {
    const off_t at = static_cast<off_t>(o.offset + block * (o.stride != 0 ? o.stride : o.block));
    file.Check(pwrite(file.fd(), buffer.data(), o.block, at) == static_cast<ssize_t>(o.block),
               "pwrite");
  }
  return o.bytes;
}

// Direct, asynchronous, eight at a time.
uint64_t Aio(const Options& o) {
  File file(o.path, O_WRONLY | O_CREAT | O_DIRECT);
  Buffer buffer(o.block);
  aio_context_t context = 0;
  constexpr int kDepth = 8;
  file.Check(syscall(SYS_io_setup, kDepth, &context) == 0, "io_setup for");
  const uint64_t blocks = o.bytes / o.block;
  for (uint64_t first = 0; first < blocks; first += kDepth) {
    const int count = static_cast<int>(std::min<uint64_t>(kDepth, blocks - first));
    iocb control[kDepth] = {};
    iocb* pointers[kDepth];
    for (int i = 0; i < count; ++i) {
      control[i].aio_fildes = file.fd();
      control[i].aio_lio_opcode = IOCB_CMD_PWRITE;
      control[i].aio_buf = reinterpret_cast<uint64_t>(buffer.data());
      control[i].aio_nbytes = o.block;
      control[i].aio_offset = static_cast<int64_t>(o.offset + (first + i) * o.block);
      pointers[i] = &control[i];
    }
    file.Check(syscall(SYS_io_submit, context, count, pointers) == count, "io_submit for");
    io_event events[kDepth];
    file.Check(syscall(SYS_io_getevents, context, count, count, events, nullptr) == count,
               "io_getevents for");
    for (int i = 0; i < count; ++i) {
      errno = EIO;
      file.Check(events[i].res == static_cast<int64_t>(o.block), "asynchronous write to");
    }
  }
  syscall(SYS_io_destroy, context);
  return o.bytes;
}

// Dirties pages by touching them.
uint64_t Mmap(const Options& o) {
  File file(o.path, O_RDWR | O_CREAT);
  file.Check(ftruncate(file.fd(), static_cast<off_t>(o.offset + o.bytes)) == 0, "size");
  char* map = static_cast<char*>(mmap(nullptr, o.bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                      file.fd(), static_cast<off_t>(o.offset)));
  file.Check(map != MAP_FAILED, "map");
  Buffer buffer(kPage);
  for (uint64_t at = 0; at < o.bytes; at += kPage) std::memcpy(map + at, buffer.data(), kPage);
  munmap(map, o.bytes);
  return o.bytes;
}

// A log: append a block, make it durable, and again.
uint64_t Append(const Options& o) {
  File file(o.path, O_WRONLY | O_CREAT | O_APPEND);
  Buffer buffer(o.block);
  for (uint64_t done = 0; done < o.bytes; done += o.block) {
    file.Check(write(file.fd(), buffer.data(), o.block) == static_cast<ssize_t>(o.block), "append");
    file.Check(fdatasync(file.fd()) == 0, "fdatasync");
  }
  return o.bytes;
}

std::string NumberedPath(const std::string& directory, const char* prefix, uint32_t number) {
  return directory + "/" + prefix + std::to_string(number);
}

// Files of one to four blocks, twenty to a directory.
uint64_t SmallFiles(const Options& o) {
  if (mkdir(o.path.c_str(), 0755) != 0) Die("mkdir", o.path);
  Buffer buffer(4 * o.block);
  std::string directory;
  uint64_t total = 0;
  for (uint32_t i = 0; i < o.files; ++i) {
    if (i % 20 == 0) {
      directory = NumberedPath(o.path, "d", i / 20);
      if (mkdir(directory.c_str(), 0755) != 0) Die("mkdir", directory);
    }
    File file(NumberedPath(directory, "f", i), O_WRONLY | O_CREAT);
    const size_t size = (1 + i % 4) * o.block;
    file.Check(write(file.fd(), buffer.data(), size) == static_cast<ssize_t>(size), "write");
    total += size;
  }
  return total;
}

// Each file is written under a temporary name and renamed over the one before it, as editors and
// package managers do; every third name is then removed. The result counts what survives.
uint64_t RenameUnlink(const Options& o) {
  if (mkdir(o.path.c_str(), 0755) != 0) Die("mkdir", o.path);
  Buffer buffer(2 * o.block);
  std::map<std::string, size_t> alive;
  for (uint32_t i = 0; i < o.files; ++i) {
    const std::string temporary = NumberedPath(o.path, "new", i);
    const std::string name = NumberedPath(o.path, "f", i % (o.files / 2 + 1));
    const size_t size = (1 + i % 2) * o.block;
    {
      File file(temporary, O_WRONLY | O_CREAT | O_EXCL);
      file.Check(write(file.fd(), buffer.data(), size) == static_cast<ssize_t>(size), "write");
    }
    if (rename(temporary.c_str(), name.c_str()) != 0) Die("rename", temporary);
    alive[name] = size;
    if (i % 3 == 2) {
      if (unlink(name.c_str()) != 0) Die("unlink", name);
      alive.erase(name);
    }
  }
  uint64_t total = 0;
  for (const auto& [name, size] : alive) total += size;
  return total;
}

// A process for each file, gone as soon as it has written: whoever looks at writeback time finds
// nobody.
uint64_t Forks(const Options& o) {
  if (mkdir(o.path.c_str(), 0755) != 0) Die("mkdir", o.path);
  Buffer buffer(2 * o.block);
  for (uint32_t i = 0; i < o.files; ++i) {
    const pid_t pid = fork();
    if (pid < 0) Die("fork for", o.path);
    if (pid == 0) {
      File file(NumberedPath(o.path, "f", i), O_WRONLY | O_CREAT);
      file.Check(
          write(file.fd(), buffer.data(), buffer.size()) == static_cast<ssize_t>(buffer.size()),
          "write");
      _exit(0);
    }
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || status != 0) Die("wait for a child of", o.path);
  }
  return uint64_t{o.files} * buffer.size();
}

// Copies inside the kernel, from memory that is no page of any disk.
uint64_t Sendfile(const Options& o) {
  File file(o.path, O_WRONLY | O_CREAT);
  const int source = memfd_create("source", MFD_CLOEXEC);
  Buffer buffer(1 << 20);
  for (uint64_t done = 0; done < o.bytes; done += buffer.size()) {
    file.Check(write(source, buffer.data(), buffer.size()) == static_cast<ssize_t>(buffer.size()),
               "prepare the source of");
  }
  off_t at = 0;
  while (static_cast<uint64_t>(at) < o.bytes) {
    file.Check(sendfile(file.fd(), source, &at, o.bytes - at) > 0, "sendfile to");
  }
  close(source);
  return o.bytes;
}

uint64_t Read(const Options& o, int extra_flags) {
  File file(o.path, O_RDONLY | extra_flags);
  Buffer buffer(o.block);
  uint64_t total = 0;
  for (;;) {
    const ssize_t got = read(file.fd(), buffer.data(), o.block);
    file.Check(got >= 0, "read");
    if (got == 0) return total;
    total += static_cast<uint64_t>(got);
  }
}

// Makes others' data durable: what blames the innocent everywhere else.
uint64_t Syncfs(const Options& o) {
  File file(o.path, O_RDONLY);
  file.Check(syncfs(file.fd()) == 0, "syncfs");
  return 0;
}

uint64_t Fsync(const Options& o) {
  File file(o.path, O_RDONLY);
  file.Check(fsync(file.fd()) == 0, "fsync");
  return 0;
}

uint64_t Sync(const Options&) {
  sync();
  return 0;
}

uint64_t Unmount(const Options& o) {
  if (umount2(o.path.c_str(), 0) != 0) Die("unmount", o.path);
  return 0;
}

}  // namespace
}  // namespace fleetblame::testing

int main(int argc, char** argv) {
  using namespace fleetblame::testing;
  Options o;
  Modes modes = {
      {"write", [](const Options& x) { return Write(x, 0); }},
      {"write-sync", [](const Options& x) { return Write(x, O_SYNC); }},
      {"write-dsync", [](const Options& x) { return Write(x, O_DSYNC); }},
      {"pwrite", [](const Options& x) { return Pwrite(x, 0); }},
      {"pwrite-direct", [](const Options& x) { return Pwrite(x, O_DIRECT); }},
      {"aio-direct", Aio},
      {"mmap", Mmap},
      {"append-fdatasync", Append},
      {"small-files", SmallFiles},
      {"rename-unlink", RenameUnlink},
      {"forks", Forks},
      {"sendfile", Sendfile},
      {"read", [](const Options& x) { return Read(x, 0); }},
      {"read-direct", [](const Options& x) { return Read(x, O_DIRECT); }},
      {"syncfs", Syncfs},
      {"fsync", Fsync},
      {"sync", Sync},
      {"unmount", Unmount},
  };
  for (const Modes& more : {CallModes(), ChangeModes(), MemoryModes(), DeviceModes()}) {
    modes.insert(more.begin(), more.end());
  }
  CLI::App app("Does one kind of IO under a given process name.");
  std::vector<std::string> names;
  for (const auto& [name, run] : modes) names.push_back(name);
  app.add_option("--mode", o.mode, "what to do")->required()->check(CLI::IsMember(names));
  app.add_option("--comm", o.comm, "name of this process, at most 15 bytes")->required();
  app.add_option("--path", o.path, "file or directory to work on")->required();
  app.add_option("--bytes", o.bytes, "file data to move");
  app.add_option("--offset", o.offset, "where in the file to begin");
  app.add_option("--block", o.block, "bytes a call");
  app.add_option("--stride", o.stride, "mode pwrite: bytes from one block to the next");
  app.add_option("--files", o.files, "number of files in the modes that make many");
  app.add_option("--cgroup", o.cgroup, "directory of a cgroup to join first");
  app.add_option("--then", o.then, "mode exec: name of the process after it");
  app.add_option("--limit", o.limit, "memory that this process may use, where a mode exceeds it");
  CLI11_PARSE(app, argc, argv);

  if (!o.cgroup.empty()) {
    // Where memory cannot be had, calls are to say so (see WriteAll). Else the kernel would kill, when
    // pages are written back more slowly than they are dirtied.
    File score("/proc/self/oom_score_adj", O_WRONLY);
    score.Check(write(score.fd(), "-1000", 5) == 5, "write");
    File processes(o.cgroup + "/cgroup.procs", O_WRONLY);
    processes.Check(write(processes.fd(), "0", 1) == 1, "join");
  }
  if (prctl(PR_SET_NAME, o.comm.c_str()) != 0) Die("name", o.comm);
  std::printf("%llu\n", static_cast<unsigned long long>(modes.at(o.mode)(o)));
  return 0;
}
