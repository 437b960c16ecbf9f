// SPDX-License-Identifier: Apache-2.0
//
// Readers of a block device that measure for themselves how long they stood still for a tag.
//
// A reader submits one direct read at a time with io_submit(), which returns as soon as the kernel
// has a request for it: what the call takes beyond its usual time is the wait for a tag. On a busy
// machine part of that is waiting for a processor, before, between and after; how much the scheduler
// tells, so the wait lies between the time asleep and the whole.
//
// Threading: Readers is used from one thread. Units: _ns of CLOCK_MONOTONIC.
#ifndef TESTS_TAGWAIT_LOAD_H_
#define TESTS_TAGWAIT_LOAD_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace fleetblame::tagwait_test {

struct Stall {
  uint64_t reads = 0;
  uint64_t errors = 0;
  uint64_t submit_ns = 0;     // sum over reads of the time in io_submit()
  uint64_t asleep_ns = 0;     // of that, neither on a processor nor waiting for one
  uint64_t slow_submits = 0;  // that took longer than 1 ms
  void Add(const Stall& other);
  // Without what a submission takes anyway.
  uint64_t StallNs(uint64_t usual_ns) const;
};

class Readers {
 public:
  Readers(const std::string& device, int threads);
  ~Readers();
  // Ends the readers and tells what they measured, all together.
  Stall Stop();

 private:
  static Stall Read(const std::string& device, int number, const std::atomic<bool>& stop);

  std::atomic<bool> stop_{false};
  std::vector<Stall> measured_;
  std::vector<std::thread> threads_;
};

// What one io_submit() takes on this device when nobody else uses it: the mean of some.
uint64_t UsualSubmitNs(const std::string& device);

// Tags that a disk holds, as debugfs tells it, looked at again and again while this lives.
class ActiveSampler {
 public:
  explicit ActiveSampler(const std::vector<std::string>& disks);
  ~ActiveSampler();
  // Mean over the samples, in the order of the disks.
  std::vector<double> Stop();

 private:
  std::vector<std::string> files_;
  std::vector<double> sums_;
  uint64_t samples_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace fleetblame::tagwait_test

#endif  // TESTS_TAGWAIT_LOAD_H_
