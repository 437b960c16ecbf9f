// SPDX-License-Identifier: Apache-2.0
#include <linux/fs.h>
#include <linux/io_uring.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>

#include "tests/groundtruth/writer_modes.h"

namespace fleetblame::testing {
namespace {

// An io_uring by its system calls alone: as much of it as a queue of writes needs.
class Ring {
 public:
  Ring(unsigned depth, unsigned flags) {
    io_uring_params params{};
    params.flags = flags;
    params.sq_thread_idle = 1000;
    fd_ = static_cast<int>(syscall(SYS_io_uring_setup, depth, &params));
    if (fd_ < 0) Die("set up", "an io_uring");
    flags_ = flags;
    sq_ = Map(params.sq_off.array + params.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    cq_ = Map(params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING);
    entries_ = reinterpret_cast<io_uring_sqe*>(
        Map(params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
    sq_tail_ = reinterpret_cast<unsigned*>(sq_ + params.sq_off.tail);
    sq_flags_ = reinterpret_cast<unsigned*>(sq_ + params.sq_off.flags);
    sq_array_ = reinterpret_cast<unsigned*>(sq_ + params.sq_off.array);
    cq_head_ = reinterpret_cast<unsigned*>(cq_ + params.cq_off.head);
    cq_tail_ = reinterpret_cast<unsigned*>(cq_ + params.cq_off.tail);
    results_ = reinterpret_cast<io_uring_cqe*>(cq_ + params.cq_off.cqes);
    sq_mask_ = params.sq_entries - 1;
    cq_mask_ = params.cq_entries - 1;
  }
  ~Ring() { close(fd_); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  void RegisterFile(int file) {
    if (syscall(SYS_io_uring_register, fd_, IORING_REGISTER_FILES, &file, 1) != 0) {
      Die("register a file with", "an io_uring");
    }
  }

  void Push(const io_uring_sqe& entry) {
    const unsigned tail = *sq_tail_;
    entries_[tail & sq_mask_] = entry;
    sq_array_[tail & sq_mask_] = tail & sq_mask_;
    __atomic_store_n(sq_tail_, tail + 1, __ATOMIC_RELEASE);
    ++pushed_;
  }

  // Submits what was pushed and waits for all of it; each must have moved `bytes`.
  void Finish(uint64_t bytes) {
    const bool polled = (flags_ & IORING_SETUP_SQPOLL) != 0;
    unsigned enter = IORING_ENTER_GETEVENTS;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (polled && (__atomic_load_n(sq_flags_, __ATOMIC_ACQUIRE) & IORING_SQ_NEED_WAKEUP) != 0) {
      enter |= IORING_ENTER_SQ_WAKEUP;
    }
    unsigned submit = pushed_;
    while (pushed_ > 0) {
      const long done = syscall(SYS_io_uring_enter, fd_, submit, pushed_, enter, nullptr, 0);
      if (done < 0 && errno != EINTR) Die("enter", "an io_uring");
      if (done > 0) submit -= std::min<unsigned>(submit, static_cast<unsigned>(done));
      unsigned head = *cq_head_;
      for (; head != __atomic_load_n(cq_tail_, __ATOMIC_ACQUIRE); ++head, --pushed_) {
        const int result = results_[head & cq_mask_].res;
        errno = result < 0 ? -result : EIO;
        if (result != static_cast<int>(bytes)) Die("write through", "an io_uring");
      }
      __atomic_store_n(cq_head_, head, __ATOMIC_RELEASE);
    }
  }

 private:
  char* Map(size_t size, off_t offset) const {
    void* map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, offset);
    if (map == MAP_FAILED) Die("map", "an io_uring");
    return static_cast<char*>(map);
  }

  int fd_ = -1;
  unsigned flags_ = 0;
  char* sq_ = nullptr;
  char* cq_ = nullptr;
  io_uring_sqe* entries_ = nullptr;
  io_uring_cqe* results_ = nullptr;
  unsigned* sq_tail_ = nullptr;
  unsigned* sq_flags_ = nullptr;
  unsigned* sq_array_ = nullptr;
  unsigned* cq_head_ = nullptr;
  unsigned* cq_tail_ = nullptr;
  unsigned sq_mask_ = 0;
  unsigned cq_mask_ = 0;
  unsigned pushed_ = 0;
};

// Eight writes at a time. `worker`: each by a worker thread instead of at once.
uint64_t Uring(const Options& o, int file_flags, unsigned ring_flags, bool worker) {
  File file(o.path, O_WRONLY | O_CREAT | file_flags);
  Buffer buffer(o.block);
  constexpr unsigned kDepth = 8;
  Ring ring(kDepth, ring_flags);
  ring.RegisterFile(file.fd());  // kernels before 5.11 want that of a polled ring
  for (uint64_t done = 0; done < o.bytes;) {
    for (unsigned i = 0; i < kDepth && done < o.bytes; ++i, done += o.block) {
      io_uring_sqe entry{};
      entry.opcode = IORING_OP_WRITE;
      entry.flags = static_cast<uint8_t>(IOSQE_FIXED_FILE | (worker ? IOSQE_ASYNC : 0));
      entry.fd = 0;  // the registered one
      entry.addr = reinterpret_cast<uint64_t>(buffer.data());
      entry.len = static_cast<uint32_t>(o.block);
      entry.off = o.offset + done;
      ring.Push(entry);
    }
    ring.Finish(o.block);
  }
  return o.bytes;
}

// From a pipe into the file.
uint64_t Splice(const Options& o) {
  File file(o.path, O_WRONLY | O_CREAT);
  Buffer buffer(o.block);
  int ends[2];
  file.Check(pipe(ends) == 0, "make a pipe for");
  for (uint64_t done = 0; done < o.bytes;) {
    const ssize_t size = write(ends[1], buffer.data(), std::min<size_t>(o.block, 65536));
    file.Check(size > 0, "fill the pipe of");
    for (ssize_t left = size; left > 0;) {
      const ssize_t moved = splice(ends[0], nullptr, file.fd(), nullptr, left, 0);
      file.Check(moved > 0, "splice to");
      left -= moved;
    }
    done += size;
  }
  close(ends[0]);
  close(ends[1]);
  return o.bytes;
}

// Copies the file of the same name with ".source" after it.
uint64_t CopyRange(const Options& o) {
  File source(o.path + ".source", O_RDONLY);
  File file(o.path, O_WRONLY | O_CREAT);
  for (uint64_t done = 0; done < o.bytes;) {
    const ssize_t moved =
        copy_file_range(source.fd(), nullptr, file.fd(), nullptr, o.bytes - done, 0);
    file.Check(moved > 0, "copy_file_range to");
    done += moved;
  }
  return o.bytes;
}

// Shares the blocks of ".source", and then overwrites each with data of its own.
uint64_t Reflink(const Options& o) {
  File source(o.path + ".source", O_RDONLY);
  File file(o.path, O_RDWR | O_CREAT);
  file.Check(ioctl(file.fd(), FICLONE, source.fd()) == 0, "share blocks with");
  Buffer buffer(o.block);
  for (uint64_t done = 0; done < o.bytes; done += o.block) {
    file.Check(pwrite(file.fd(), buffer.data(), o.block, static_cast<off_t>(done)) ==
                   static_cast<ssize_t>(o.block),
               "pwrite");
  }
  return o.bytes;
}

// Dirties pages by touching them, and makes them durable itself.
uint64_t Msync(const Options& o) {
  File file(o.path, O_RDWR | O_CREAT);
  file.Check(ftruncate(file.fd(), static_cast<off_t>(o.bytes)) == 0, "size");
  char* map =
      static_cast<char*>(mmap(nullptr, o.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0));
  file.Check(map != MAP_FAILED, "map");
  Buffer buffer(kPage);
  for (uint64_t at = 0; at < o.bytes; at += kPage) std::memcpy(map + at, buffer.data(), kPage);
  file.Check(msync(map, o.bytes, MS_SYNC) == 0, "msync");
  munmap(map, o.bytes);
  return o.bytes;
}

}  // namespace

Modes CallModes() {
  return {
      {"uring-worker", [](const Options& o) { return Uring(o, 0, 0, true); }},
      {"uring-sqpoll",
       [](const Options& o) { return Uring(o, O_DIRECT, IORING_SETUP_SQPOLL, false); }},
      {"splice", Splice},
      {"copy-range", CopyRange},
      {"reflink", Reflink},
      {"msync", Msync},
  };
}

}  // namespace fleetblame::testing
