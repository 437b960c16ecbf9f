// SPDX-License-Identifier: Apache-2.0
#include "tests/tagwait/load.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace fleetblame::tagwait_test {
namespace {

constexpr size_t kReadBytes = 4096;
constexpr uint64_t kSlowNs = 1'000'000;
constexpr int kUsualReads = 64;

uint64_t Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

// One direct read at a time.
class Aio {
 public:
  explicit Aio(const std::string& device) {
    fd_ = open(device.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (syscall(SYS_io_setup, 1, &context_) != 0) context_ = 0;
    if (posix_memalign(&buffer_, 4096, kReadBytes) != 0) buffer_ = nullptr;
    uint64_t bytes = 0;
    if (fd_ >= 0 && ioctl(fd_, BLKGETSIZE64, &bytes) == 0) blocks_ = bytes / kReadBytes;
  }
  ~Aio() {
    if (context_ != 0) syscall(SYS_io_destroy, context_);
    if (fd_ >= 0) close(fd_);
    if (schedstat_ >= 0) close(schedstat_);
    free(buffer_);
  }
  bool ok() const { return fd_ >= 0 && context_ != 0 && buffer_ != nullptr && blocks_ > 0; }

  // Time in io_submit(); 0 when the read failed. Adds to `asleep_ns` what of it was sleep.
  uint64_t Read(uint64_t block, uint64_t* asleep_ns = nullptr) {
    iocb request{};
    request.aio_fildes = static_cast<uint32_t>(fd_);
    request.aio_lio_opcode = IOCB_CMD_PREAD;
    request.aio_buf = reinterpret_cast<uint64_t>(buffer_);
    request.aio_nbytes = kReadBytes;
    request.aio_offset = static_cast<int64_t>(block % blocks_ * kReadBytes);
    iocb* list[] = {&request};
    const uint64_t awake = asleep_ns == nullptr ? 0 : AwakeNs();
    const uint64_t begin = Now();
    if (syscall(SYS_io_submit, context_, 1, list) != 1) return 0;
    const uint64_t end = Now();
    if (asleep_ns != nullptr) {
      const uint64_t more = AwakeNs() - awake;
      if (more < end - begin) *asleep_ns += end - begin - more;
    }
    io_event event{};
    if (syscall(SYS_io_getevents, context_, 1, 1, &event, nullptr) != 1) return 0;
    return event.res == static_cast<int64_t>(kReadBytes) ? end - begin : 0;
  }

 private:
  // Time on processors and waiting for one, of the thread that calls this first.
  uint64_t AwakeNs() {
    if (schedstat_ < 0) schedstat_ = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    char text[96] = {};
    unsigned long long on = 0;
    unsigned long long waiting = 0;
    if (pread(schedstat_, text, sizeof(text) - 1, 0) > 0) {
      std::sscanf(text, "%llu %llu", &on, &waiting);
    }
    return on + waiting;
  }

  int fd_ = -1;
  int schedstat_ = -1;
  aio_context_t context_ = 0;
  void* buffer_ = nullptr;
  uint64_t blocks_ = 0;
};

}  // namespace

void Stall::Add(const Stall& other) {
  reads += other.reads;
  errors += other.errors;
  submit_ns += other.submit_ns;
  asleep_ns += other.asleep_ns;
  slow_submits += other.slow_submits;
}

uint64_t Stall::StallNs(uint64_t usual_ns) const {
  const uint64_t usual = reads * usual_ns;
  return submit_ns > usual ? submit_ns - usual : 0;
}

Readers::Readers(const std::string& device, int threads) : measured_(threads) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, device, i] { measured_[i] = Read(device, i, stop_); });
  }
}

Readers::~Readers() { Stop(); }

Stall Readers::Stop() {
  stop_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  Stall sum;
  for (const Stall& one : measured_) sum.Add(one);
  return sum;
}

Stall Readers::Read(const std::string& device, int number, const std::atomic<bool>& stop) {
  Stall stall;
  Aio aio(device);
  if (!aio.ok()) {
    stall.errors = 1;
    return stall;
  }
  // Far apart, so that reads are never merged.
  for (uint64_t block = number * 97; !stop; block += 1009) {
    const uint64_t took = aio.Read(block, &stall.asleep_ns);
    if (took == 0) {
      ++stall.errors;
      if (stall.errors > 16) break;  // the disk is gone
      continue;
    }
    ++stall.reads;
    stall.submit_ns += took;
    if (took > kSlowNs) ++stall.slow_submits;
  }
  return stall;
}

uint64_t UsualSubmitNs(const std::string& device) {
  Aio aio(device);
  if (!aio.ok()) return 0;
  uint64_t sum = 0;
  for (int i = 0; i < kUsualReads; ++i) sum += aio.Read(i * 1009);
  return sum / kUsualReads;
}

ActiveSampler::ActiveSampler(const std::vector<std::string>& disks) : sums_(disks.size(), 0) {
  mount("debugfs", "/sys/kernel/debug", "debugfs", 0, nullptr);
  for (const std::string& disk : disks) {
    files_.push_back("/sys/kernel/debug/block/" + disk + "/hctx0/active");
  }
  thread_ = std::thread([this] {
    while (!stop_) {
      std::vector<double> seen;
      for (const std::string& file : files_) {
        double value = 0;
        if (std::ifstream stream(file); stream >> value) seen.push_back(value);
      }
      if (seen.size() == files_.size()) {
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
