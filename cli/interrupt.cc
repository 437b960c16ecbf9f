// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <csignal>

#include <atomic>
#include <cstdint>
#include <thread>

namespace fleetblame::cli {
namespace {

// A handler may only do what is async-signal-safe: it writes here and a thread does the rest.
std::atomic<int> wake_fd{-1};

extern "C" void OnSignal(int signal) {
  uint64_t one = 1;
  int fd = wake_fd.load();
  if (fd >= 0) (void)!write(fd, &one, sizeof one);
  std::signal(signal, SIG_DFL);
}

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

}  // namespace

struct CancelOnSignal::Watcher {
  explicit Watcher(grpc::ClientContext* context)
      : fd(eventfd(0, EFD_CLOEXEC)), thread([this, context] {
          uint64_t value = 0;
          if (read(fd, &value, sizeof value) == sizeof value && !done) context->TryCancel();
        }) {}
  int fd;
  std::atomic<bool> done{false};
  std::thread thread;
};

CancelOnSignal::CancelOnSignal(grpc::ClientContext* context) : watcher_(new Watcher(context)) {
  wake_fd = watcher_->fd;
  for (int signal : kSignals) std::signal(signal, OnSignal);
}

CancelOnSignal::~CancelOnSignal() {
  for (int signal : kSignals) std::signal(signal, SIG_DFL);
  watcher_->done = true;
  uint64_t one = 1;
  (void)!write(watcher_->fd, &one, sizeof one);
  watcher_->thread.join();
  wake_fd = -1;
  close(watcher_->fd);
  delete watcher_;
}

}  // namespace fleetblame::cli
