// SPDX-License-Identifier: Apache-2.0
#include "node-agent/stream/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/log.h"
#include "common/saturating.h"
#include "common/version.h"
#include "node-agent/compact/batch_cutter.h"
#include "node-agent/compact/row_codec.h"
#include "node-agent/host/clocks.h"

namespace fleetblame::agent {
namespace {

constexpr uint32_t kProtocolVersion = 1;
// What an aggregator that says nothing is taken to mean.
constexpr uint64_t kDefaultMessageBytes = 4 << 20;
constexpr uint64_t kDefaultCreditBytes = 1 << 20;
// With less no batch of one row would fit, and everything would have to be thrown away.
constexpr uint64_t kLeastMessageBytes = 4 << 10;
// Room for what wraps a batch or definitions.
constexpr uint64_t kEnvelopeBytes = 64;
constexpr absl::Duration kDefaultRetry = absl::Seconds(1);
constexpr absl::Duration kRetryAfterDiskError = absl::Seconds(10);
constexpr absl::Duration kLongestRetry = absl::Minutes(10);
constexpr int kMaxRegisters = 3;
// So many definitions may travel twice; for more it is worth to wait for the Ack.
constexpr size_t kRepeatedDefinitions = 8;
constexpr int kMaxNeeded = 20000;
constexpr size_t kMaxQueuedDefinitions = 256;
constexpr absl::Duration kRetainInterval = absl::Seconds(5);
constexpr int64_t kSkewWorthTelling = 10'000'000'000;

uint64_t CountDefinitions(const v1::Definitions& d) {
  return uint64_t{d.intents().size()} + d.actors().size() + d.devices().size() + d.files().size();
}

}  // namespace

Session::Session(const HelloIdentity& identity, Spool* spool, Dictionary* dictionary, Hooks hooks,
                 SessionCounters* counters)
    : identity_(identity),
      spool_(spool),
      dictionary_(dictionary),
      hooks_(std::move(hooks)),
      counters_(counters) {}

v1::AgentMessage Session::MakeHello() const {
  v1::AgentMessage message;
  v1::Hello* hello = message.mutable_hello();
  hello->set_protocol_version(kProtocolVersion);
  hello->set_host_id(identity_.host_id);
  hello->set_hostname(identity_.hostname);
  hello->set_boot_id(identity_.boot_id);
  hello->set_spool_epoch(spool_->epoch());
  uint64_t first = 0;
  uint64_t last = 0;
  spool_->Range(&first, &last);
  hello->set_first_spooled_seq(first);
  hello->set_last_spooled_seq(last);
  hello->set_agent_version(std::string(kVersion));
  hello->set_kernel_release(identity_.kernel_release);
  hello->set_tracer(identity_.tracer);
  hello->mutable_labels()->insert(identity_.labels.begin(), identity_.labels.end());
  hello->set_realtime_unix_ns(RealTimeNs());
  hello->set_boottime_ns(BootTimeNs());
  return message;
}

// ---------------------------------------------------------------------------------- sending

std::optional<v1::AgentMessage> Session::NextMessage(absl::Time now) {
  if (state_ == State::kHello) {
    state_ = State::kAwaitAck;
    return MakeHello();
  }
  if (state_ == State::kAwaitAck) return std::nullopt;
  if (!definitions_.empty()) {
    v1::AgentMessage message = std::move(definitions_.front());
    definitions_.pop_front();
    counters_->definitions_sent += CountDefinitions(message.definitions());
    return message;
  }
  if (hooks_.take_trace_events) {
    if (auto events = hooks_.take_trace_events()) {
      counters_->trace_events_sent += static_cast<uint64_t>(events->events_size());
      v1::AgentMessage message;
      *message.mutable_trace_events() = *std::move(events);
      return message;
    }
  }
  if (now < pause_until_) return std::nullopt;
  pause_until_ = absl::InfinitePast();
  return NextBatch();
}

// Fills prepared_ with the batch of next_seq_. False when there is nothing to send.
bool Session::Prepare() {
  if (prepared_) return true;
  uint64_t first = 0;
  uint64_t last = 0;
  spool_->Range(&first, &last);
  if (last == 0 || next_seq_ > last) return false;
  // Earlier ones are gone, which the aggregator was told in Hello.
  next_seq_ = std::max(next_seq_, first);
  auto batch = spool_->Read(next_seq_);
  if (!batch.ok()) {
    LogError("a batch cannot be read from the spool", {{"status", batch.status()}});
    return false;
  }
  auto refs = CollectRefs(*batch);
  if (!refs.ok()) {
    LogError("a spooled batch makes no sense and is set aside", {{"status", refs.status()}});
    spool_->SetAside(next_seq_);
    batch = spool_->Read(next_seq_);
    if (!batch.ok()) return false;
    refs = DictionaryRefs();
  }
  Prepared prepared;
  prepared.refs = *std::move(refs);
  v1::Definitions definitions = dictionary_->Define(prepared.refs, /*all=*/false);
  const uint64_t definition_count = CountDefinitions(definitions);
  auto note = [&](DefinitionKind kind, const auto& numbers) {
    for (const auto& [number, definition] : numbers) {
      prepared.carried.emplace_back(prepared.refs.dictionary_id, static_cast<int>(kind), number);
    }
  };
  note(DefinitionKind::kIntent, definitions.intents());
  note(DefinitionKind::kActor, definitions.actors());
  note(DefinitionKind::kDevice, definitions.devices());
  note(DefinitionKind::kFile, definitions.files());
  *prepared.message.mutable_batch() = *std::move(batch);
  if (definition_count > 0) {
    *prepared.message.mutable_batch()->mutable_definitions() = std::move(definitions);
  }
  prepared.bytes = prepared.message.ByteSizeLong();
  if (prepared.bytes > max_message_bytes_ && definition_count > 0) {
    // Definitions may go ahead in messages of their own; rows may not.
    QueueDefinitions(std::move(*prepared.message.mutable_batch()->mutable_definitions()));
    prepared.message.mutable_batch()->clear_definitions();
    prepared.bytes = prepared.message.ByteSizeLong();
  }
  if (prepared.bytes > max_message_bytes_) {
    definitions_.clear();
    return SplitOrSetAside(next_seq_, absl::StrCat(prepared.bytes, " bytes, and at most ",
                                                   max_message_bytes_, " go")) &&
           Prepare();
  }
  prepared_ = std::move(prepared);
  return true;
}

std::optional<v1::AgentMessage> Session::NextBatch() {
  if (!Prepare()) return std::nullopt;
  if (!definitions_.empty()) {
    v1::AgentMessage message = std::move(definitions_.front());
    definitions_.pop_front();
    counters_->definitions_sent += CountDefinitions(message.definitions());
    return message;
  }
  // One may always be under way, or a batch larger than the credit would never go.
  if (!in_flight_.empty() &&
      (in_flight_bytes_ + prepared_->bytes > credit_bytes_ || WouldRepeatDefinitions())) {
    return std::nullopt;
  }
  Prepared prepared = *std::move(prepared_);
  prepared_.reset();
  spool_->MarkSent(next_seq_);
  Push({next_seq_, prepared.bytes, std::move(prepared.refs), std::move(prepared.carried)});
  ++next_seq_;
  ++counters_->batches_sent;
  counters_->batch_bytes_sent += prepared.bytes;
  counters_->rows_sent += prepared.message.batch().row_count();
  counters_->definitions_sent += CountDefinitions(prepared.message.batch().definitions());
  return std::move(prepared.message);
}

// Cuts definitions into messages that fit.
void Session::QueueDefinitions(v1::Definitions definitions) {
  const uint64_t room = max_message_bytes_ - kEnvelopeBytes;
  v1::AgentMessage message;
  uint64_t bytes = 0;
  auto flush = [&] {
    if (bytes == 0) return;
    message.mutable_definitions()->set_dictionary_id(definitions.dictionary_id());
    if (definitions_.size() < kMaxQueuedDefinitions) definitions_.push_back(std::move(message));
    message = v1::AgentMessage();
    bytes = 0;
  };
  auto add = [&](auto& from, auto member) {
    for (auto& [number, definition] : from) {
      const uint64_t size = definition.ByteSizeLong() + kEnvelopeBytes;
      // What does not fit alone cannot be sent at all; its batch will be refused and set aside.
      if (size > room) continue;
      if (bytes + size > room) flush();
      (*member(message.mutable_definitions()))[number] = std::move(definition);
      bytes += size;
    }
  };
  add(*definitions.mutable_intents(), [](v1::Definitions* d) { return d->mutable_intents(); });
  add(*definitions.mutable_actors(), [](v1::Definitions* d) { return d->mutable_actors(); });
  add(*definitions.mutable_devices(), [](v1::Definitions* d) { return d->mutable_devices(); });
  add(*definitions.mutable_files(), [](v1::Definitions* d) { return d->mutable_files(); });
  flush();
}

bool Session::SplitOrSetAside(uint64_t seq, const std::string& reason) {
  prepared_.reset();
  auto batch = spool_->Read(seq);
  absl::Status status = batch.status();
  if (batch.ok()) {
    auto parts = SplitBatch(*batch);
    status = parts.status();
    if (parts.ok()) {
      status = spool_->Split(seq, *std::move(parts));
      if (!status.ok()) {
        LogWarning("a batch that is too large cannot be split now", {{"status", status}});
        pause_until_ = absl::Now() + kRetryAfterDiskError;
        return false;
      }
    }
  }
  if (status.ok()) return true;
  LogError("a batch is too large and cannot be split; it is set aside and a gap is recorded",
           {{"seq", seq}, {"reason", reason}, {"status", status}});
  spool_->SetAside(seq);
  return true;
}

// ---------------------------------------------------------------------------------- receiving

absl::Status Session::Receive(const v1::AggregatorMessage& message, absl::Time now) {
  absl::Status status;
  switch (message.message_case()) {
    case v1::AggregatorMessage::kHelloAck:
      status = OnHelloAck(message.hello_ack());
      break;
    case v1::AggregatorMessage::kAck:
      status = OnAck(message.ack());
      break;
    case v1::AggregatorMessage::kNeed:
      status = OnNeed(message.need());
      break;
    case v1::AggregatorMessage::kReject:
      status = OnReject(message.reject(), now);
      break;
    case v1::AggregatorMessage::kDirectives:
      OnDirectives(message.directives());
      break;
    default:
      break;  // of a newer version
  }
  if (!status.ok()) ++counters_->protocol_errors;
  return status;
}

absl::Status Session::OnHelloAck(const v1::HelloAck& ack) {
  if (state_ != State::kAwaitAck) {
    return absl::FailedPreconditionError("the aggregator sent a HelloAck that nobody asked for");
  }
  max_message_bytes_ =
      ack.max_message_bytes() == 0 ? kDefaultMessageBytes : ack.max_message_bytes();
  credit_bytes_ = ack.credit_bytes() == 0 ? kDefaultCreditBytes : ack.credit_bytes();
  if (max_message_bytes_ < kLeastMessageBytes) {
    return absl::FailedPreconditionError(absl::StrCat("the aggregator takes messages of ",
                                                      max_message_bytes_, " bytes only; at least ",
                                                      kLeastMessageBytes, " are needed"));
  }
  dictionary_->SetEpoch(ack.dictionary_epoch());
  if (auto status = spool_->Resume(ack.durable_seq()); !status.ok()) return status;
  durable_seq_ = ack.durable_seq();
  counters_->durable_seq = durable_seq_;
  Rewind(0);
  next_seq_ = durable_seq_ + 1;
  state_ = State::kOpen;
  if (ack.realtime_unix_ns() != 0) {
    const int64_t skew = SaturatingDifference(ack.realtime_unix_ns(), RealTimeNs());
    counters_->clock_skew_ns = skew;
    if (skew > kSkewWorthTelling || skew < -kSkewWorthTelling) {
      LogWarning("the clocks of this host and of the aggregator differ",
                 {{"aggregator_minus_host_ns", counters_->clock_skew_ns}});
    }
  }
  if (directive_mark_.dictionary_epoch != ack.dictionary_epoch()) {
    directive_mark_ = {ack.dictionary_epoch(), 0};
  }
  if (ack.has_directives()) OnDirectives(ack.directives());
  return absl::OkStatus();
}

absl::Status Session::OnAck(const v1::Ack& ack) {
  // An earlier stream may have sent more than this one.
  const uint64_t highest_sent = spool_->sent_seq();
  if (ack.durable_seq() > highest_sent) {
    return absl::FailedPreconditionError(
        absl::StrCat("the aggregator acknowledges batch ", ack.durable_seq(),
                     ", but the newest one sent is ", highest_sent));
  }
  if (state_ == State::kHello) return absl::OkStatus();
  if (ack.credit_bytes() != 0) credit_bytes_ = ack.credit_bytes();
  ++counters_->acks;
  if (ack.durable_seq() <= durable_seq_) return absl::OkStatus();
  durable_seq_ = ack.durable_seq();
  counters_->durable_seq = durable_seq_;
  registers_without_ack_ = 0;
  while (!in_flight_.empty() && in_flight_.front().seq <= durable_seq_) {
    dictionary_->Acknowledge(in_flight_.front().refs);
    Drop(in_flight_.front());
    in_flight_.pop_front();
  }
  // What was just acknowledged need not go with the next one.
  if (prepared_ && !prepared_->carried.empty()) prepared_.reset();
  // A batch that was to be sent again had made it after all.
  if (next_seq_ <= durable_seq_) {
    next_seq_ = durable_seq_ + 1;
    prepared_.reset();
  }
  spool_->Free(durable_seq_);
  if (const absl::Time now = absl::Now(); now - last_retain_ > kRetainInterval) {
    last_retain_ = now;
    dictionary_->Retain(spool_->DictionariesInUse());
  }
  return absl::OkStatus();
}

absl::Status Session::OnNeed(const v1::Need& need) {
  ++counters_->needs;
  if (state_ != State::kOpen) return absl::OkStatus();
  DictionaryRefs refs;
  refs.dictionary_id = need.dictionary_id();
  // No batch refers to more; who asks for more gets the first ones.
  auto take = [&](DefinitionKind kind, const auto& numbers) {
    const int count = std::min(numbers.size(), kMaxNeeded);
    refs.numbers[static_cast<size_t>(kind)].assign(numbers.begin(), numbers.begin() + count);
  };
  take(DefinitionKind::kIntent, need.intents());
  take(DefinitionKind::kActor, need.actors());
  take(DefinitionKind::kDevice, need.devices());
  take(DefinitionKind::kFile, need.files());
  QueueDefinitions(dictionary_->Define(refs, /*all=*/true));
  return absl::OkStatus();
}

void Session::Push(InFlight batch) {
  in_flight_bytes_ += batch.bytes;
  for (const DefinitionKey& key : batch.carried) ++carried_[key];
  in_flight_.push_back(std::move(batch));
}

void Session::Drop(const InFlight& batch) {
  in_flight_bytes_ -= batch.bytes;
  for (const DefinitionKey& key : batch.carried) {
    auto it = carried_.find(key);
    if (--it->second == 0) carried_.erase(it);
  }
}

// A batch stands alone, so it carries what is not acknowledged even if the one before it does too.
// After a start or an outage that is nearly everything: the Ack is worth waiting for.
bool Session::WouldRepeatDefinitions() const {
  size_t repeated = 0;
  for (const DefinitionKey& key : prepared_->carried) {
    if (carried_.contains(key) && ++repeated > kRepeatedDefinitions) return true;
  }
  return false;
}

void Session::Rewind(uint64_t seq) {
  while (!in_flight_.empty() && in_flight_.back().seq >= seq) {
    Drop(in_flight_.back());
    in_flight_.pop_back();
  }
  next_seq_ = std::min(next_seq_, seq);
  prepared_.reset();
}

absl::Status Session::OnReject(const v1::Reject& reject, absl::Time now) {
  if (state_ != State::kOpen) return absl::OkStatus();
  const uint64_t seq = reject.seq();
  const bool in_flight =
      !in_flight_.empty() && seq >= in_flight_.front().seq && seq <= in_flight_.back().seq;
  if (reject.action() == v1::Reject::ACTION_REGISTER) {
    ++counters_->rejects_register;
    if (++registers_without_ack_ > kMaxRegisters) {
      return absl::UnavailableError(
          absl::StrCat("the aggregator wants to hear Hello again and again: ", reject.reason()));
    }
    LogDebug("the aggregator asks for a new Hello", {{"reason", reject.reason()}});
    Rewind(0);
    definitions_.clear();
    state_ = State::kHello;
    return absl::OkStatus();
  }
  // What follows a rejected batch is often rejected too, after it was called back already.
  if (!in_flight) return absl::OkStatus();
  Rewind(seq);
  switch (reject.action()) {
    case v1::Reject::ACTION_SPLIT:
      ++counters_->rejects_split;
      SplitOrSetAside(seq, reject.reason());
      break;
    case v1::Reject::ACTION_DROP:
      ++counters_->rejects_drop;
      LogError("the aggregator can never take a batch; it is set aside and a gap is recorded",
               {{"seq", seq}, {"reason", reject.reason()}});
      spool_->SetAside(seq);
      break;
    default: {
      ++counters_->rejects_retry;
      absl::Duration wait = absl::Nanoseconds(
          static_cast<int64_t>(std::min<uint64_t>(reject.retry_after_ns(), INT64_MAX)));
      if (wait <= absl::ZeroDuration()) wait = kDefaultRetry;
      pause_until_ = now + std::min(wait, kLongestRetry);
      LogWarning("the aggregator asks to send later",
                 {{"seq", seq}, {"retry_after", wait}, {"reason", reject.reason()}});
      break;
    }
  }
  return absl::OkStatus();
}

void Session::OnDirectives(const v1::Directives& directives) {
  if (directives.revision() < directive_mark_.revision) return;
  directive_mark_.revision = directives.revision();
  if (hooks_.on_directives) hooks_.on_directives(directives);
}

}  // namespace fleetblame::agent
