// SPDX-License-Identifier: Apache-2.0
#include "node-agent/stream/connection.h"

#include <utility>

#include "absl/time/clock.h"

namespace fleetblame::agent {

Connection::Connection(std::shared_ptr<grpc::Channel> channel, std::function<void()> wake)
    : channel_(std::move(channel)),
      stub_(v1::Collector::NewStub(channel_)),
      wake_(std::move(wake)) {
  stub_->async()->Stream(&context_, this);
  // Writes begin outside of reactions, so the stream must not end under them.
  AddHold();
  StartRead(&reading_);
  StartCall();
}

Connection::~Connection() {
  context_.TryCancel();
  Release();
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](std::optional<grpc::Status>* finished) { return finished->has_value(); }, &finished_));
}

// Gives up the hold once; OnDone may follow at once.
void Connection::Release() {
  {
    absl::MutexLock lock(&mutex_);
    if (!held_) return;
    held_ = false;
  }
  RemoveHold();
}

std::optional<v1::AggregatorMessage> Connection::TakeReceived() {
  bool resume = false;
  std::optional<v1::AggregatorMessage> message;
  {
    absl::MutexLock lock(&mutex_);
    if (received_.empty()) return std::nullopt;
    message = std::move(received_.front());
    received_.pop_front();
    resume = read_paused_ && held_;
    if (resume) read_paused_ = false;
  }
  if (resume) StartRead(&reading_);
  return message;
}

bool Connection::can_send() const {
  absl::MutexLock lock(&mutex_);
  return !write_pending_ && !writes_closed_ && !broken_ && held_;
}

void Connection::Send(v1::AgentMessage message) {
  {
    absl::MutexLock lock(&mutex_);
    write_pending_ = true;
    write_began_ = absl::Now();
  }
  writing_ = std::move(message);
  StartWrite(&writing_);
}

absl::Time Connection::sending_since() const {
  absl::MutexLock lock(&mutex_);
  return write_pending_ ? write_began_ : absl::InfiniteFuture();
}

void Connection::HalfClose() {
  {
    absl::MutexLock lock(&mutex_);
    if (write_pending_ || writes_closed_ || broken_ || !held_) return;
    writes_closed_ = true;
  }
  StartWritesDone();
}

void Connection::Cancel() { context_.TryCancel(); }

std::optional<grpc::Status> Connection::Finished() {
  bool over = false;
  {
    absl::MutexLock lock(&mutex_);
    over = broken_ && !write_pending_;
  }
  // Only the owner gives up the hold: a write of its own can never come after that.
  if (over) Release();
  absl::MutexLock lock(&mutex_);
  return finished_;
}

void Connection::OnReadDone(bool ok) {
  bool more = false;
  {
    absl::MutexLock lock(&mutex_);
    if (ok) {
      received_.push_back(std::move(reading_));
      reading_ = v1::AggregatorMessage();
      more = received_.size() < kMaxReceived;
      read_paused_ = !more;
    } else {
      broken_ = true;
    }
  }
  if (more) StartRead(&reading_);
  wake_();
}

void Connection::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    write_pending_ = false;
    if (!ok) broken_ = true;
  }
  wake_();
}

void Connection::OnWritesDoneDone(bool /*ok*/) { wake_(); }

void Connection::OnDone(const grpc::Status& status) {
  // The destructor may run as soon as the lock is free, so wake_ is copied.
  const std::function<void()> wake = wake_;
  {
    absl::MutexLock lock(&mutex_);
    finished_ = status;
  }
  wake();
}

}  // namespace fleetblame::agent
