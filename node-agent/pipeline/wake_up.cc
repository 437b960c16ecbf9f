// SPDX-License-Identifier: Apache-2.0
#include "node-agent/pipeline/wake_up.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/clock.h"

namespace fleetblame::agent {

absl::StatusOr<std::unique_ptr<WakeUp>> WakeUp::Block() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  if (int error = ::pthread_sigmask(SIG_BLOCK, &signals, nullptr); error != 0) {
    return absl::ErrnoToStatus(error, "block signals");
  }
  const int signal_fd = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd < 0) return absl::ErrnoToStatus(errno, "signalfd");
  const int event_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event_fd < 0) {
    const int error = errno;
    ::close(signal_fd);
    return absl::ErrnoToStatus(error, "eventfd");
  }
  return std::unique_ptr<WakeUp>(new WakeUp(signal_fd, event_fd));
}

WakeUp::~WakeUp() {
  ::close(signal_fd_);
  ::close(event_fd_);
}

void WakeUp::Wait(absl::Time deadline) {
  pollfd fds[] = {{signal_fd_, POLLIN, 0}, {event_fd_, POLLIN, 0}};
  const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
  // Rounded up: waking a fraction too early would only mean to sleep again.
  const int64_t ms =
      std::min<int64_t>(absl::ToInt64Milliseconds(left + absl::Microseconds(999)), 3'600'000);
  if (::poll(fds, 2, static_cast<int>(ms)) <= 0) return;
  signalfd_siginfo info;
  while (::read(signal_fd_, &info, sizeof(info)) == sizeof(info)) stopping_ = true;
  uint64_t pokes = 0;
  if (::read(event_fd_, &pokes, sizeof(pokes)) < 0) {
    // Nothing was there to be read; fine.
  }
}

void WakeUp::Poke() {
  const uint64_t one = 1;
  // Fails only when a wake-up is pending already.
  if (::write(event_fd_, &one, sizeof(one)) < 0) return;
}

}  // namespace fleetblame::agent
