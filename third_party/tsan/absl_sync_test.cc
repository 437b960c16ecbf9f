// SPDX-License-Identifier: Apache-2.0
//
// Correct code with every kind of Abseil waiting that our code uses. Under
// --config=tsan it fails when the sanitizer does not see a lock.
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 5000;

class AbslSync : public ::testing::Test {
 protected:
  ~AbslSync() override {
    for (auto& thread : threads_) thread.join();
  }
  template <typename Body>
  void Run(Body body) {
    for (int i = 0; i < kThreads; ++i) threads_.emplace_back(body);
  }
  void JoinAll() {
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }
  absl::Mutex mutex_;
  long value_ = 0;

 private:
  std::vector<std::thread> threads_;
};

TEST_F(AbslSync, LocksExclude) {
  Run([this] {
    for (int i = 0; i < kRounds; ++i) {
      absl::MutexLock lock(&mutex_);
      ++value_;
    }
  });
  JoinAll();
  EXPECT_EQ(value_, kThreads * kRounds);
}

TEST_F(AbslSync, ReadersSeeWhatWritersWrote) {
  Run([this] {
    for (int i = 0; i < kRounds; ++i) {
      absl::ReaderMutexLock lock(&mutex_);
      EXPECT_GE(value_, 0);
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    absl::MutexLock lock(&mutex_);
    ++value_;
  }
}

TEST_F(AbslSync, ConditionsAreReadUnderTheLock) {
  Run([this] {
    const auto arrived = [this] { return value_ >= kThreads; };
    absl::MutexLock lock(&mutex_);
    ++value_;
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&arrived), absl::Seconds(30)));
    ++value_;
  });
  const auto done = [this] { return value_ == 2 * kThreads; };
  mutex_.LockWhen(absl::Condition(&done));
  value_ = 0;
  mutex_.Unlock();
}

TEST_F(AbslSync, CondVarsLetGoAndTakeAgain) {
  absl::CondVar changed;
  Run([this, &changed] {
    absl::MutexLock lock(&mutex_);
    while (value_ == 0) changed.WaitWithTimeout(&mutex_, absl::Seconds(1));
    ++value_;
  });
  {
    absl::MutexLock lock(&mutex_);
    value_ = 1;
    changed.SignalAll();
  }
  JoinAll();
  EXPECT_EQ(value_, 1 + kThreads);
}

TEST_F(AbslSync, NotificationPublishes) {
  absl::Notification ready;
  Run([this, &ready] {
    ready.WaitForNotification();
    EXPECT_EQ(value_, 5);
  });
  std::thread poller([this, &ready] {
    while (!ready.HasBeenNotified()) std::this_thread::yield();
    EXPECT_EQ(value_, 5);
  });
  value_ = 5;
  ready.Notify();
  poller.join();
  JoinAll();  // before what they wait for goes
}

}  // namespace
