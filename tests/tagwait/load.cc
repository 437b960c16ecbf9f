// SPDX-License-Identifier: Apache-2.0
#include "tests/tagwait/load.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace fleetblame::tagwait_test {
namespace {

constexpr size_t kReadBytes = 4096;

uint64_t NowOf(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

void Fill(iocb* request, int fd, void* buffer, uint64_t offset) {
  *request = {};
  request->aio_fildes = static_cast<uint32_t>(fd);
  request->aio_lio_opcode = IOCB_CMD_PREAD;
  request->aio_buf = reinterpret_cast<uint64_t>(buffer);
  request->aio_nbytes = kReadBytes;
  request->aio_offset = static_cast<int64_t>(offset);
}

// One direct read at a time, of the thread that makes it.
class Aio {
 public:
  explicit Aio(const std::string& device) : tid_(static_cast<uint32_t>(gettid())) {
    fd_ = open(device.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (syscall(SYS_io_setup, 1, &context_) != 0) context_ = 0;
    if (posix_memalign(&buffer_, 4096, kReadBytes) != 0) buffer_ = nullptr;
    // Memory that was touched: to get it later a thread may have to wait for another one's mmap().
    if (buffer_ != nullptr) std::memset(buffer_, 1, kReadBytes);
    uint64_t bytes = 0;
    if (fd_ >= 0 && ioctl(fd_, BLKGETSIZE64, &bytes) == 0) blocks_ = bytes / kReadBytes;
  }
  ~Aio() {
    if (context_ != 0) syscall(SYS_io_destroy, context_);
    if (fd_ >= 0) close(fd_);
    free(buffer_);
  }
  bool ok() const { return fd_ >= 0 && context_ != 0 && buffer_ != nullptr && blocks_ > 0; }

  bool Read(uint64_t block, Stall* stall) {
    iocb request;
    Fill(&request, fd_, buffer_, block % blocks_ * kReadBytes);
    iocb* list[] = {&request};
    rusage before{};
    rusage after{};
    getrusage(RUSAGE_THREAD, &before);
    const uint64_t ran = NowOf(CLOCK_THREAD_CPUTIME_ID);
    const uint64_t begin = NowOf(CLOCK_BOOTTIME);
    if (syscall(SYS_io_submit, context_, 1, list) != 1) return false;
    const uint64_t end = NowOf(CLOCK_BOOTTIME);
    const uint64_t ran_since = NowOf(CLOCK_THREAD_CPUTIME_ID) - ran;
    getrusage(RUSAGE_THREAD, &after);
    if (after.ru_nvcsw != before.ru_nvcsw) {
      const uint64_t took = end - begin;
      stall->slept.push_back({tid_, begin, end, took > ran_since ? took - ran_since : 0});
      if (after.ru_nivcsw != before.ru_nivcsw) ++stall->preempted;
    }
    io_event event{};
    if (syscall(SYS_io_getevents, context_, 1, 1, &event, nullptr) != 1) return false;
    return event.res == static_cast<int64_t>(kReadBytes);
  }

 private:
  const uint32_t tid_;
  int fd_ = -1;
  aio_context_t context_ = 0;
  void* buffer_ = nullptr;
  uint64_t blocks_ = 0;
};

}  // namespace

void Stall::Add(const Stall& other) {
  reads += other.reads;
  errors += other.errors;
  preempted += other.preempted;
  slept.insert(slept.end(), other.slept.begin(), other.slept.end());
  since_ns.insert(other.since_ns.begin(), other.since_ns.end());
}

uint64_t Stall::WholeNs() const {
  uint64_t sum = 0;
  for (const Call& call : slept) sum += call.end_ns - call.begin_ns;
  return sum;
}

uint64_t Stall::OffNs() const {
  uint64_t sum = 0;
  for (const Call& call : slept) sum += call.off_ns;
  return sum;
}

Readers::Readers(const std::string& device, int threads, uint64_t reads) : measured_(threads) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, device, i, reads] { measured_[i] = Read(device, i, reads); });
  }
}

Readers::~Readers() { Stop(); }

void Readers::Join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

Stall Readers::Stop() {
  stop_ = true;
  Join();
  Stall sum;
  for (const Stall& one : measured_) sum.Add(one);
  return sum;
}

Stall Readers::Read(const std::string& device, int number, uint64_t reads) {
  Stall stall;
  const sched_param first{.sched_priority = 1};
  Aio aio(device);
  if (!aio.ok() || sched_setscheduler(0, SCHED_FIFO, &first) != 0) {
    stall.errors = 1;
    return stall;
  }
  stall.since_ns[static_cast<uint32_t>(gettid())] = NowOf(CLOCK_BOOTTIME);
  // Far apart, so that reads are never merged.
  for (uint64_t block = number * 97; !stop_ && (reads == 0 || stall.reads + stall.errors < reads);
       block += 1009) {
    const size_t slept = stall.slept.size();
    const bool done = aio.Read(block, &stall);
    slept_ += stall.slept.size() - slept;
    if (done) {
      ++stall.reads;
    } else if (++stall.errors > 16) {
      break;  // the disk is gone
    }
  }
  return stall;
}

Pending::Pending(const std::string& device, int reads) : reads_(reads) {
  fd_ = open(device.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd_ < 0 || posix_memalign(&buffer_, 4096, kReadBytes) != 0) return;
  aio_context_t context = 0;
  if (syscall(SYS_io_setup, 64, &context) != 0) return;
  context_ = context;
  submitted_ = true;
  for (int i = 0; i < reads; ++i) {
    iocb request;
    Fill(&request, fd_, buffer_, (101 + i * 1009ull) * kReadBytes);
    iocb* list[] = {&request};
    submitted_ &= syscall(SYS_io_submit, context_, 1, list) == 1;
  }
}

Pending::~Pending() {
  if (context_ != 0) syscall(SYS_io_destroy, context_);  // waits for them
  if (fd_ >= 0) close(fd_);
  free(buffer_);
}

bool Pending::all_under_way() const {
  if (!submitted_ || done_) return false;
  io_event event{};
  timespec now{};
  done_ = reads_ > 0 && syscall(SYS_io_getevents, context_, 0, 1, &event, &now) != 0;
  return !done_;
}

double ActiveNow(const std::string& disk) {
  double value = -1;
  std::ifstream stream("/sys/kernel/debug/block/" + disk + "/hctx0/active");
  return stream >> value ? value : -1;
}

ActiveSampler::ActiveSampler(const std::vector<std::string>& disks)
    : disks_(disks), sums_(disks.size(), 0) {
  thread_ = std::thread([this] {
    while (!stop_) {
      std::vector<double> seen;
      for (const std::string& disk : disks_) seen.push_back(ActiveNow(disk));
      if (*std::min_element(seen.begin(), seen.end()) >= 0) {
        for (size_t i = 0; i < seen.size(); ++i) sums_[i] += seen[i];
        ++samples_;
      }
      usleep(3000);
    }
  });
}

ActiveSampler::~ActiveSampler() { Stop(); }

std::vector<double> ActiveSampler::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  std::vector<double> means;
  for (double sum : sums_) means.push_back(samples_ == 0 ? -1 : sum / samples_);
  return means;
}

}  // namespace fleetblame::tagwait_test
