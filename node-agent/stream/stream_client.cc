// SPDX-License-Identifier: Apache-2.0
#include "node-agent/stream/stream_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/absl_view.h"
#include "common/log.h"
#include "common/version.h"

namespace fleetblame::agent {
namespace {

// A stream that ends in order within this was of no use, so the next one has to wait its turn.
constexpr absl::Duration kShortStream = absl::Seconds(5);
constexpr int kMaxReceiveBytes = 4 << 20;
constexpr int kKeepaliveMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr absl::Duration kGracefulEnd = absl::Seconds(2);

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const TlsConfig& tls,
                                           const KeyMaterial& material) {
  grpc::ChannelArguments arguments;
  // A channel serves one attempt: no connection of an earlier one, with older certificates, is
  // taken up again, and gRPC's own back-off does not add to ours.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Measuring bandwidth would cost an idle host more than its data.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  arguments.SetUserAgentPrefix(absl::StrCat("fleetblame-agent/", std::string(kVersion)));
  if (!tls.server_name.empty()) {
    arguments.SetSslTargetNameOverride(tls.server_name);
  }
  return grpc::CreateCustomChannel(address, MakeCredentials(tls, material), arguments);
}

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace

StreamClient::StreamClient(StreamOptions options, Spool* spool, Dictionary* dictionary,
                           Session::Hooks hooks)
    : options_(std::move(options)),
      spool_(spool),
      dictionary_(dictionary),
      hooks_(std::move(hooks)),
      backoff_(options_.first_backoff, options_.longest_backoff) {}

StreamClient::~StreamClient() { Stop(absl::ZeroDuration()); }

void StreamClient::Start() {
  thread_ = std::thread([this] { Run(); });
}

void StreamClient::Notify() {
  absl::MutexLock lock(&mutex_);
  notified_ = true;
}

bool StreamClient::Stop(absl::Duration patience) {
  if (thread_.joinable()) {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
      notified_ = true;
      stop_deadline_ = absl::Now() + patience;
    }
    thread_.join();
  }
  return Delivered();
}

StreamStats StreamClient::stats() const {
  absl::MutexLock lock(&mutex_);
  return stats_;
}

bool StreamClient::Delivered() const {
  uint64_t first = 0;
  uint64_t last = 0;
  spool_->Range(&first, &last);
  return last == 0;
}

bool StreamClient::MustStop() const {
  absl::Time deadline;
  {
    absl::MutexLock lock(&mutex_);
    if (!stopping_) return false;
    deadline = stop_deadline_;
  }
  return absl::Now() >= deadline || Delivered();
}

void StreamClient::WaitUntil(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithDeadline(absl::Condition(&notified_), std::min(deadline, stop_deadline_));
  notified_ = false;
}

void StreamClient::PublishCounters() {
  absl::MutexLock lock(&mutex_);
  stats_.session = counters_;
}

void StreamClient::Run() {
  bool told = false;
  while (!MustStop()) {
    const absl::Time began = absl::Now();
    const absl::Status status = RunConnection();
    {
      absl::MutexLock lock(&mutex_);
      stats_.connected = false;
      stats_.last_error = status.ok() ? "" : std::string(status.message());
      if (!status.ok()) ++stats_.connection_failures;
    }
    PublishCounters();
    if (MustStop()) return;
    absl::Duration wait = absl::ZeroDuration();
    // The aggregator spreads the ends of lifetimes itself: come back at once.
    if (!status.ok() || absl::Now() - began < kShortStream) wait = backoff_.Next();
    if (!status.ok()) {
      LogWarning(told ? "still no stream to the aggregator" : "no stream to the aggregator",
                 {{"error", std::string(status.message())}, {"retry_in", wait}});
      told = true;
    } else {
      told = false;
    }
    for (const absl::Time until = absl::Now() + wait; absl::Now() < until && !MustStop();) {
      WaitUntil(until);
    }
  }
}

absl::Status StreamClient::RunConnection() {
  auto material = ReadKeyMaterial(options_.tls);
  if (!material.ok()) return material.status();
  Session session(options_.identity, spool_, dictionary_, hooks_, &counters_);
  session.set_directive_mark(directive_mark_);
  last_heard_ = absl::Now();
  absl::Status status;
  {
    Connection connection(MakeChannel(options_.address, options_.tls, *material),
                          [this] { Notify(); });
    status = Converse(connection, session, *material);
  }
  directive_mark_ = session.directive_mark();
  return status;
}

// What the end of the stream means; OK when it ended in order.
absl::Status StreamClient::EndOf(Connection& connection) {
  const auto finished = connection.Finished();
  if (!finished || finished->ok()) return absl::OkStatus();
  const absl::Status status = FromGrpc(*finished);
  return absl::Status(status.code(), ExplainConnectionError(options_.tls, options_.address,
                                                            FromAbsl(status.message())));
}

// Moves messages both ways as far as it goes without waiting.
absl::Status StreamClient::Pump(Connection& connection, Session& session) {
  for (bool progress = true; progress;) {
    progress = false;
    while (auto message = connection.TakeReceived()) {
      progress = true;
      last_heard_ = absl::Now();
      const bool was_established = session.established();
      if (auto status = session.Receive(*message, last_heard_); !status.ok()) return status;
      if (message->has_ack()) backoff_.Reset();
      if (session.established() && !was_established) {
        LogInfo("connected to the aggregator",
                {{"address", options_.address}, {"durable_seq", counters_.durable_seq}});
        absl::MutexLock lock(&mutex_);
        ++stats_.connections;
        stats_.connected = true;
        stats_.last_error.clear();
      }
    }
    if (connection.can_send()) {
      if (auto message = session.NextMessage(absl::Now())) {
        // The clock of an answer starts with the first question.
        if (message->has_batch() && session.single_in_flight()) {
          last_heard_ = absl::Now();
        }
        connection.Send(*std::move(message));
        progress = true;
      }
    }
  }
  PublishCounters();
  return absl::OkStatus();
}

absl::Status StreamClient::Converse(Connection& connection, Session& session,
                                    const KeyMaterial& material) {
  const absl::Time began = absl::Now();
  absl::Time check_certificates = began + options_.certificate_check_interval;
  absl::Time end_by = absl::InfiniteFuture();  // once this side has nothing more to say
  absl::Status verdict;
  while (true) {
    if (auto status = Pump(connection, session); !status.ok()) return status;
    const absl::Time now = absl::Now();
    if (connection.Finished()) {
      // The last messages may have come between the two calls.
      if (auto status = Pump(connection, session); !status.ok()) return status;
      const absl::Status end = EndOf(connection);
      return verdict.ok() ? end : verdict;
    }
    if (now >= end_by) return verdict;

    absl::Time wake = std::min(end_by, check_certificates);
    if (!session.established()) {
      const absl::Time limit = began + options_.hello_timeout;
      if (now >= limit) {
        return absl::DeadlineExceededError(
            absl::StrCat(options_.address, ": no answer to Hello within ",
                         absl::FormatDuration(options_.hello_timeout)));
      }
      wake = std::min(wake, limit);
    } else if (!session.idle()) {
      const absl::Time limit = last_heard_ + options_.silence_timeout;
      if (now >= limit) {
        return absl::DeadlineExceededError(absl::StrCat(
            options_.address, ": no answer for ", absl::FormatDuration(options_.silence_timeout)));
      }
      wake = std::min(wake, limit);
    }
    if (now - connection.sending_since() >= options_.silence_timeout) {
      return absl::DeadlineExceededError(absl::StrCat(options_.address, ": it takes no messages"));
    }
    if (connection.sending_since() != absl::InfiniteFuture()) {
      wake = std::min(wake, connection.sending_since() + options_.silence_timeout);
    }
    if (session.WakeTime() > now) wake = std::min(wake, session.WakeTime());

    bool end = MustStop();
    if (now >= check_certificates) {
      check_certificates = now + options_.certificate_check_interval;
      auto current = ReadKeyMaterial(options_.tls);
      // Files in the middle of a change are looked at again at the next check.
      if (current.ok() && *current != material) {
        LogInfo("the TLS files changed; connecting again");
        end = true;
      }
    }
    if (end && end_by == absl::InfiniteFuture()) {
      connection.HalfClose();
      end_by = now + kGracefulEnd;
      wake = std::min(wake, end_by);
    }
    WaitUntil(wake);
  }
}

absl::Status ProbeAggregator(const std::string& address, const TlsConfig& tls,
                             absl::Duration timeout) {
  auto material = ReadKeyMaterial(tls);
  if (!material.ok()) return material.status();
  auto channel = MakeChannel(address, tls, *material);
  // A call that the aggregator refuses at once tells more than a channel that only connects.
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  auto stub = v1::Collector::NewStub(channel);
  auto stream = stub->Stream(&context);
  stream->WritesDone();
  v1::AggregatorMessage message;
  while (stream->Read(&message)) {
  }
  const grpc::Status status = stream->Finish();
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
    case grpc::StatusCode::FAILED_PRECONDITION:  // "the first message was not a valid Hello"
      return absl::OkStatus();
    case grpc::StatusCode::UNIMPLEMENTED:
      return absl::UnavailableError(
          absl::StrCat(address, ": what listens there is not a Fleetblame aggregator"));
    default:
      return absl::UnavailableError(ExplainConnectionError(tls, address, status.error_message()));
  }
}

}  // namespace fleetblame::agent
