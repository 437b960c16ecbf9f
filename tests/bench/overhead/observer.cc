// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/overhead/observer.h"

#include <signal.h>
#include <time.h>

#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/bench/overhead/bpf_programs.h"
#include "tests/testing/child_process.h"

namespace fleetblame::testing {
namespace {

class Nothing : public Observer {
 public:
  absl::Status Start(const std::string&) override { return absl::OkStatus(); }
  absl::StatusOr<Observation> Stop() override { return Observation(); }
};

class InProcessTracer : public Observer {
 public:
  using Make = std::function<absl::StatusOr<std::unique_ptr<agent::Tracer>>(const std::string&)>;
  InProcessTracer(Make make, absl::Duration interval)
      : make_(std::move(make)), interval_(interval) {}
  ~InProcessTracer() override { EndCollector(); }

  absl::Status Start(const std::string& disk) override {
    auto tracer = make_(disk);
    if (!tracer.ok()) return tracer.status();
    tracer_ = *std::move(tracer);
    observation_ = Observation();
    status_ = absl::OkStatus();
    stop_ = std::make_unique<absl::Notification>();
    collector_ = std::thread([this] {
      while (!stop_->WaitForNotificationWithTimeout(interval_)) CollectOnce();
    });
    return absl::OkStatus();
  }

  absl::StatusOr<Observation> Stop() override {
    EndCollector();
    CollectOnce();
    tracer_.reset();
    if (!status_.ok()) return status_;
    return observation_;
  }

 private:
  void EndCollector() {
    if (!collector_.joinable()) return;
    stop_->Notify();
    collector_.join();
  }

  void CollectOnce() {
    auto snapshot = tracer_->Collect();
    if (!snapshot.ok()) {
      status_ = snapshot.status();
      return;
    }
    observation_.rows += snapshot->rows.size();
    for (const agent::Books& books : snapshot->books) {
      observation_.recorded_bytes += books.recorded_bytes;
      observation_.lost_bytes += books.lost_bytes;
      observation_.kernel_bytes += books.kernel_bytes;
    }
    for (const auto& [name, count] : snapshot->losses) observation_.losses[name] += count;
  }

  Make make_;
  absl::Duration interval_;
  std::unique_ptr<agent::Tracer> tracer_;
  std::unique_ptr<absl::Notification> stop_;
  std::thread collector_;
  Observation observation_;
  absl::Status status_;
};

class Program : public Observer {
 public:
  explicit Program(std::vector<std::string> command) : command_(std::move(command)) {}

  absl::Status Start(const std::string& disk) override {
    std::vector<std::string> command;
    for (const std::string& word : command_) {
      command.push_back(absl::StrReplaceAll(word, {{"{disk}", disk}}));
    }
    const size_t programs_before = ListBpfPrograms().size();
    auto child = ChildProcess::Start(command, ChildProcess::Output::kDiscard);
    if (!child.ok()) return child.status();
    child_ = *std::move(child);
    const absl::Time deadline = absl::Now() + absl::Seconds(15);
    while (ListBpfPrograms().size() <= programs_before) {
      if (absl::Now() > deadline || kill(child_->pid(), 0) != 0) {
        return absl::UnavailableError(absl::StrCat(command[0], " loaded no BPF program"));
      }
      absl::SleepFor(absl::Milliseconds(50));
    }
    absl::SleepFor(absl::Milliseconds(700));  // it attaches after it has loaded
    return absl::OkStatus();
  }

  absl::StatusOr<Observation> Stop() override {
    auto ended = child_->Stop(SIGINT);
    child_.reset();
    if (!ended.ok()) return ended.status();
    return Observation();
  }

  pid_t pid() const override { return child_ == nullptr ? getpid() : child_->pid(); }

  uint64_t ChildCpuNs() const override {
    clockid_t clock;
    timespec t{};
    if (child_ == nullptr || clock_getcpuclockid(child_->pid(), &clock) != 0 ||
        clock_gettime(clock, &t) != 0) {
      return 0;
    }
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
  }

 private:
  std::vector<std::string> command_;
  std::unique_ptr<ChildProcess> child_;
};

}  // namespace

std::unique_ptr<Observer> NoObserver() { return std::make_unique<Nothing>(); }

std::unique_ptr<Observer> TracerObserver(
    std::function<absl::StatusOr<std::unique_ptr<agent::Tracer>>(const std::string& disk)> make,
    absl::Duration interval) {
  return std::make_unique<InProcessTracer>(std::move(make), interval);
}

std::unique_ptr<Observer> ProgramObserver(std::vector<std::string> command) {
  return std::make_unique<Program>(std::move(command));
}

}  // namespace fleetblame::testing
