// SPDX-License-Identifier: Apache-2.0
//
// Readers of a block device that measure for themselves how long they stood still for a tag.
//
// A reader submits one direct read at a time with io_submit(), which returns as soon as the kernel
// has a request for it and sleeps for nothing but a tag. Readers run before all ordinary threads
// and do not preempt each other, so what a call takes beyond the processor time that it used is the
// wait, without what the thread ran in between rounds; the call itself is the wait and a little
// more. The true wait lies between the two, on a busy machine as well.
//
// Threading: Readers is used from one thread. Units: _ns of CLOCK_BOOTTIME, which the tracer uses.
#ifndef TESTS_TAGWAIT_LOAD_H_
#define TESTS_TAGWAIT_LOAD_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace fleetblame::tagwait_test {

// A call that slept.
struct Call {
  uint32_t tid = 0;
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  uint64_t off_ns = 0;  // of that, not on a processor
};

struct Stall {
  uint64_t reads = 0;
  uint64_t errors = 0;
  uint64_t preempted = 0;  // calls in which somebody else got the processor
  std::vector<Call> slept;
  // Since when each thread only submits: opening a disk may look for partitions, and wait as well.
  std::map<uint32_t, uint64_t> since_ns;
  void Add(const Stall& other);
  uint64_t WholeNs() const;
  uint64_t OffNs() const;
};

class Readers {
 public:
  // `reads`: of each thread, 0 = until it is stopped.
  Readers(const std::string& device, int threads, uint64_t reads = 0);
  ~Readers();
  // Waits for readers that have an end.
  void Join();
  // Calls that slept so far.
  uint64_t slept() const { return slept_; }
  // Ends the readers and tells what they measured, all together.
  Stall Stop();

 private:
  Stall Read(const std::string& device, int number, uint64_t reads);

  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> slept_{0};
  std::vector<Stall> measured_;
  std::vector<std::thread> threads_;
};

// Reads that stay under way until the device is done with them.
class Pending {
 public:
  Pending(const std::string& device, int reads);
  ~Pending();
  // All were submitted, and none is done yet.
  bool all_under_way() const;

 private:
  int fd_ = -1;
  int reads_ = 0;
  uint64_t context_ = 0;
  void* buffer_ = nullptr;
  bool submitted_ = false;
  mutable bool done_ = false;
};

// Requests of a disk under way in a pool of hardware tags, as debugfs tells it; -1 without.
double ActiveNow(const std::string& disk);

// ActiveNow(), looked at again and again while this lives.
class ActiveSampler {
 public:
  explicit ActiveSampler(const std::vector<std::string>& disks);
  ~ActiveSampler();
  // Mean over the samples, in the order of the disks.
  std::vector<double> Stop();

 private:
  std::vector<std::string> disks_;
  std::vector<double> sums_;
  uint64_t samples_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace fleetblame::tagwait_test

#endif  // TESTS_TAGWAIT_LOAD_H_
