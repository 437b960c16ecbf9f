// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/agent_session.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "aggregator/ingest/batch_decoder.h"
#include "aggregator/ingest/definitions_check.h"
#include "aggregator/ingest/hello_check.h"
#include "aggregator/ingest/host_binding.h"
#include "common/log.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace fleetblame::aggregator {
namespace {

constexpr absl::Duration kSkewWorthTelling = absl::Seconds(10);
constexpr absl::Duration kRetryAfterStoreError = absl::Seconds(5);
constexpr absl::Duration kRetrySpread = absl::Seconds(10);
constexpr absl::Duration kRetryAfterUnanswered = absl::Seconds(1);
// While others wait for memory, a batch may not hold it for long.
constexpr absl::Duration kHoldUnderPressure = absl::Seconds(2);
// An agent that answers Need twice without bringing anything new does not have it.
constexpr int kMaxFruitlessAnswers = 2;

// What a message may grow to when it is parsed; corrected once that is known.
uint64_t EstimateMemory(uint64_t wire_bytes) { return 4096 + 12 * wire_bytes; }

absl::Duration Jittered(absl::Duration lifetime) {
  absl::BitGen random;
  return lifetime * absl::Uniform(random, 0.9, 1.1);
}

absl::Duration WithSpread(absl::Duration least) {
  absl::BitGen random;
  return least + kRetrySpread * absl::Uniform(random, 0.0, 1.0);
}

bool ParseMessage(const grpc::ByteBuffer& bytes, v1::AgentMessage* message) {
  grpc::ByteBuffer copy(bytes);  // shares the slices; the reader wants it mutable
  grpc::ProtoBufferReader reader(&copy);
  return reader.status().ok() && message->ParseFromZeroCopyStream(&reader);
}

// The same for what nearly every message is: a Batch and nothing else, into one that was used
// before. False for everything else, and `batch` is unspecified then.
bool ParseAsBatch(const grpc::ByteBuffer& bytes, v1::Batch* batch) {
  using google::protobuf::internal::WireFormatLite;
  constexpr uint32_t kTag = WireFormatLite::MakeTag(v1::AgentMessage::kBatchFieldNumber,
                                                    WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  grpc::ByteBuffer copy(bytes);
  grpc::ProtoBufferReader reader(&copy);
  if (!reader.status().ok()) return false;
  google::protobuf::io::CodedInputStream in(&reader);
  uint32_t length = 0;
  return in.ReadTag() == kTag && in.ReadVarint32(&length) &&
         static_cast<size_t>(in.CurrentPosition()) + length == bytes.Length() &&
         batch->MergeFromCodedStream(&in) && in.ConsumedEntireMessage();
}

// Aggregator minus host; 0 when the host did not say. A senseless clock is just very far away, but
// so that two of them can still be compared.
int64_t SkewNs(absl::Time now, uint64_t host_unix_ns) {
  if (host_unix_ns == 0) return 0;
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max() / 2;
  return absl::ToUnixNanos(now) - static_cast<int64_t>(std::min(host_unix_ns, kMax));
}

uint64_t CountNeeds(const v1::Need& need) {
  return static_cast<uint64_t>(need.intents_size()) + need.actors_size() + need.devices_size() +
         need.files_size();
}

// The span for which an agent that skips ahead has lost its batches: from when it was last heard of
// to where its data begin again.
v1::Gap GapBefore(const v1::Batch& batch, uint64_t batches, uint64_t last_seen_unix_ns) {
  v1::Gap gap;
  uint64_t end = batch.window().start_boot_ns() + batch.window().realtime_offset_ns();
  uint64_t start = last_seen_unix_ns != 0 && last_seen_unix_ns < end ? last_seen_unix_ns : end - 1;
  gap.set_start_unix_ns(start);
  gap.set_end_unix_ns(end);
  gap.set_cause("missing_batches");
  gap.set_batches(batches);
  return gap;
}

}  // namespace

AgentSession::AgentSession(const SessionContext* context, Peer peer, absl::Time now)
    : context_(*context),
      peer_(std::move(peer)),
      started_(now),
      lifetime_(Jittered(context->limits.stream_lifetime)) {}

void AgentSession::Start(std::weak_ptr<Io> io) {
  {
    absl::MutexLock lock(&mu_);
    io_ = std::move(io);
  }
  ReadMore();
}

void AgentSession::ReadMore() {
  std::shared_ptr<Io> io;
  {
    absl::MutexLock lock(&mu_);
    if (!Ended()) io = io_.lock();
  }
  if (io != nullptr) io->ReadMore();
}

void AgentSession::Wake() {
  std::shared_ptr<Io> io;
  {
    absl::MutexLock lock(&mu_);
    io = io_.lock();
  }
  if (io != nullptr) io->Wake();
}

AgentSession::Next AgentSession::TakeNext() {
  absl::MutexLock lock(&mu_);
  Next next;
  if (!outbox_.empty()) {
    next.message = outbox_.Take();
  } else if (finish_ && unacked_.empty()) {
    next.finish = finish_;
  }
  return next;
}

// ---- receiving

void AgentSession::Receive(grpc::ByteBuffer message) {
  uint64_t bytes = message.Length();
  context_.metrics->wire_bytes.Increment(static_cast<double>(bytes));
  ByteBudget::Lease lease;
  if (AwaitsHello() || context_.budget->TryTake(EstimateMemory(bytes), &lease)) {
    bool read_on = Process(message, std::move(lease));
    if (read_on) ReadMore();
    return Wake();
  }
  // The closure must be copyable, so the lease travels in a shared pointer.
  auto later = [self = shared_from_this(), message](ByteBudget::Lease granted) {
    auto shared = std::make_shared<ByteBudget::Lease>(std::move(granted));
    self->context_.deferred->Run([self, message, shared] {
      bool read_on = self->Process(message, std::move(*shared));
      if (read_on) self->ReadMore();
      self->Wake();
    });
  };
  context_.budget->TakeOrWait(EstimateMemory(bytes), std::move(later));
}

bool AgentSession::AwaitsHello() const {
  absl::MutexLock lock(&mu_);
  return phase_ == Phase::kAwaitHello;
}

bool AgentSession::Process(const grpc::ByteBuffer& bytes, ByteBudget::Lease lease) {
  Phase phase;
  {
    absl::MutexLock lock(&mu_);
    phase = phase_;
  }
  if (phase == Phase::kDraining || phase == Phase::kClosed) return false;
  if (phase == Phase::kOpen) {
    DecodedBatchPtr decoded = context_.pool->Get();
    if (ParseAsBatch(bytes, &decoded->batch)) {
      decoded->wire_bytes = bytes.Length();
      HandleBatch(std::move(decoded), std::move(lease));
      return true;
    }
  }
  if (phase == Phase::kAwaitHello && bytes.Length() > context_.limits.max_hello_bytes) {
    absl::MutexLock lock(&mu_);
    context_.metrics->refused_hello.Increment();
    Fail(grpc::StatusCode::FAILED_PRECONDITION,
         absl::StrCat("the first message must be a Hello of at most ",
                      context_.limits.max_hello_bytes, " bytes"));
    return false;
  }
  v1::AgentMessage message;
  if (!ParseMessage(bytes, &message)) return HandleMalformed(bytes);
  if (message.has_hello()) return HandleHello(std::move(*message.mutable_hello()));
  if (phase != Phase::kOpen) {
    absl::MutexLock lock(&mu_);
    context_.metrics->refused_hello.Increment();
    Fail(grpc::StatusCode::FAILED_PRECONDITION, "the first message must be a Hello");
    return false;
  }
  switch (message.message_case()) {
    case v1::AgentMessage::kBatch: {
      DecodedBatchPtr decoded = context_.pool->Get();
      decoded->batch = std::move(*message.mutable_batch());
      decoded->wire_bytes = bytes.Length();
      HandleBatch(std::move(decoded), std::move(lease));
      break;
    }
    case v1::AgentMessage::kDefinitions:
      HandleDefinitions(std::move(*message.mutable_definitions()), std::move(lease));
      break;
    case v1::AgentMessage::kTraceEvents:
      HandleTraceEvents(std::move(*message.mutable_trace_events()));
      break;
    default:
      break;  // of a newer version: ignored
  }
  return true;
}

bool AgentSession::HandleMalformed(const grpc::ByteBuffer& bytes) {
  context_.metrics->malformed_messages.Increment();
  // A batch that is broken by one text that is not UTF-8 would come again for ever: name it.
  std::vector<grpc::Slice> slices;
  std::optional<uint64_t> seq;
  if (bytes.Dump(&slices).ok()) {
    constexpr size_t kHeadBytes = 32;  // tags, length and seq fit in
    std::string head;
    for (const grpc::Slice& slice : slices) {
      head.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
      if (head.size() >= kHeadBytes) break;
    }
    seq = PeekBatchSeq(head);
  }
  absl::MutexLock lock(&mu_);
  if (phase_ == Phase::kOpen && seq && *seq == next_seq_ && !must_register_) {
    RejectBatch(*seq, v1::Reject::ACTION_DROP,
                "the message does not parse; texts must be valid UTF-8");
    return true;
  }
  Fail(grpc::StatusCode::INVALID_ARGUMENT, "a message is not an AgentMessage");
  return false;
}

bool AgentSession::HandleHello(v1::Hello hello) {
  absl::Status status = CheckHello(hello);
  {
    absl::MutexLock lock(&mu_);
    if (Ended()) return false;
    if (status.ok() && phase_ == Phase::kOpen &&
        (hello.host_id() != host_id_ || hello.spool_epoch() != spool_epoch_)) {
      status = absl::FailedPreconditionError("Hello: a stream cannot change its host or spool");
    }
    if (!status.ok()) {
      context_.metrics->refused_hello.Increment();
      LogWarning("agent refused", {{"peer", peer_.address}, {"error", status}});
      Fail(grpc::StatusCode::FAILED_PRECONDITION, std::string(status.message()));
      return false;
    }
    phase_ = Phase::kRegistering;
    Forget();
    must_register_ = false;
    unsettled_seq_.reset();
  }
  context_.registrar->Submit(shared_from_this(), std::move(hello));
  return false;  // reading goes on once the agent is registered
}

// Makes this the stream of its host, which may end another: only when it may speak for it.
bool AgentSession::Claim(const v1::Hello& hello, absl::Time now) {
  if (context_.bind_hosts) {
    absl::Status bound =
        CheckHostBinding(peer_.certificate_names, hello.host_id(), hello.hostname(),
                         context_.hosts->HostnameOf(hello.host_id()));
    if (!bound.ok()) {
      Refuse(hello, bound, &context_.metrics->refused_certificate);
      return false;
    }
  }
  absl::Status claimed =
      context_.registry->Claim(hello.host_id(), hello.spool_epoch(), shared_from_this(), now);
  if (claimed.ok()) return true;
  Refuse(hello, claimed, &context_.metrics->refused_duplicate_host);
  return false;
}

void AgentSession::Refuse(const v1::Hello& hello, const absl::Status& why,
                          prometheus::Counter* counter) {
  counter->Increment();
  LogWarning("agent refused",
             {{"peer", peer_.address}, {"host_id", hello.host_id()}, {"error", why}});
  {
    absl::MutexLock lock(&mu_);
    // The codes of absl and gRPC are the same numbers.
    Fail(static_cast<grpc::StatusCode>(why.code()), std::string(why.message()));
  }
  Wake();
}

std::optional<HostRecord> AgentSession::BeginRegistration(const v1::Hello& hello, absl::Time now) {
  {
    absl::MutexLock lock(&mu_);
    if (phase_ != Phase::kRegistering) return std::nullopt;
    host_id_ = hello.host_id();
    spool_epoch_ = hello.spool_epoch();
    first_spooled_seq_ = hello.first_spooled_seq();
  }
  if (!Claim(hello, now)) return std::nullopt;

  HostRecord host;
  host.host_id = hello.host_id();
  host.hostname = hello.hostname();
  host.labels = {hello.labels().begin(), hello.labels().end()};
  host.kernel_release = hello.kernel_release();
  host.agent_version = hello.agent_version();
  host.tracer = hello.tracer();
  host.last_seen_unix_ns = absl::ToUnixNanos(now);
  host.clock_skew_ns = SkewNs(now, hello.realtime_unix_ns());
  absl::Duration skew = absl::Nanoseconds(host.clock_skew_ns);
  if (absl::AbsDuration(skew) >= kSkewWorthTelling) {
    context_.metrics->skewed_hellos.Increment();
    LogWarning(
        "the clock of a host differs from the aggregator; its data keep the time of the host",
        {{"host_id", host.host_id}, {"aggregator_minus_host", skew}});
  }
  return host;
}

void AgentSession::EndRegistration(absl::StatusOr<HostDirectory::Registered> registered) {
  std::string host_id;
  uint64_t spool_epoch;
  {
    absl::MutexLock lock(&mu_);
    host_id = host_id_;
    spool_epoch = spool_epoch_;
  }
  absl::StatusOr<uint64_t> durable_seq =
      registered.ok() ? context_.store->DurableSeq(registered->host.number, spool_epoch)
                      : absl::StatusOr<uint64_t>(registered.status());
  if (!durable_seq.ok()) {
    context_.metrics->refused_store.Increment();
    bool full = absl::IsResourceExhausted(durable_seq.status());
    {
      absl::MutexLock lock(&mu_);
      Fail(full ? grpc::StatusCode::RESOURCE_EXHAUSTED : grpc::StatusCode::UNAVAILABLE,
           absl::StrCat("cannot register: ", durable_seq.status().message()));
    }
    context_.registry->Release(host_id, this);
    return Wake();
  }

  auto record = std::make_shared<const HostRecord>(registered->host);
  v1::HelloAck hello_ack = MakeHelloAck(*durable_seq);
  *hello_ack.mutable_directives() = context_.directives->For(*record);
  LogDebug("agent registered", {{"peer", peer_.address},
                                {"host_id", record->host_id},
                                {"durable_seq", *durable_seq},
                                {"agent_version", record->agent_version}});
  {
    absl::MutexLock lock(&mu_);
    if (phase_ == Phase::kRegistering) {
      phase_ = Phase::kOpen;
      registered_ = *std::move(registered);
      durable_seq_ = *durable_seq;
      next_seq_ = durable_seq_ + 1;
      directives_revision_ = hello_ack.directives().revision();
      outbox_.Put(std::move(hello_ack));
    }
  }
  context_.registry->SetHost(std::move(record), this);
  // It may have ended, or the directives may have changed, before the registry knew it.
  bool ended;
  {
    absl::MutexLock lock(&mu_);
    ended = phase_ == Phase::kClosed;
  }
  if (ended) context_.registry->Release(host_id, this);
  SendDirectives();
  Wake();
  ReadMore();
}

v1::HelloAck AgentSession::MakeHelloAck(uint64_t durable_seq) const {
  v1::HelloAck ack;
  ack.set_durable_seq(durable_seq);
  ack.set_dictionary_epoch(context_.store->dictionary_epoch());
  ack.set_max_message_bytes(context_.limits.max_message_bytes);
  ack.set_credit_bytes(context_.limits.credit_bytes);
  ack.set_stream_lifetime_ns(absl::ToInt64Nanoseconds(lifetime_));
  ack.set_realtime_unix_ns(absl::GetCurrentTimeNanos());
  return ack;
}

// ---- batches

AgentSession::Admission AgentSession::AdmitBatch(const v1::Batch& batch, uint64_t wire_bytes) {
  uint64_t seq = batch.seq();
  if (phase_ != Phase::kOpen) return Admission::kDiscard;
  if (seq == 0) {
    Fail(grpc::StatusCode::INVALID_ARGUMENT, "sequence numbers begin with 1");
    return Admission::kDiscard;
  }
  if (must_register_ || (unsettled_seq_ && seq != *unsettled_seq_)) {
    context_.metrics->batches_discarded.Increment();
    return Admission::kDiscard;
  }
  if (batch.spool_epoch() != spool_epoch_) {
    RejectBatch(seq, v1::Reject::ACTION_REGISTER, "the batch is of another spool than Hello said");
    return Admission::kDiscard;
  }
  if (seq <= durable_seq_) {
    context_.metrics->batches_duplicate.Increment();
    PutAck();
    return Admission::kDiscard;
  }
  if (seq < next_seq_) {  // on its way to the disk: will be acknowledged
    context_.metrics->batches_duplicate.Increment();
    return Admission::kDiscard;
  }
  bool skip = seq > next_seq_;
  if (skip && (seq != first_spooled_seq_ || next_seq_ != durable_seq_ + 1)) {
    context_.metrics->batches_out_of_order.Increment();
    RejectBatch(seq, v1::Reject::ACTION_REGISTER,
                absl::StrCat("batch ", seq, " came instead of ", next_seq_));
    return Admission::kDiscard;
  }
  if (wire_bytes > context_.limits.max_message_bytes) {
    RejectBatch(seq, v1::Reject::ACTION_SPLIT,
                absl::StrCat("message of ", wire_bytes, " bytes; at most ",
                             context_.limits.max_message_bytes));
    return Admission::kDiscard;
  }
  if (unacked_bytes_ + wire_bytes >
      context_.limits.credit_bytes + context_.limits.max_message_bytes) {
    Fail(grpc::StatusCode::RESOURCE_EXHAUSTED,
         absl::StrCat("more than ", context_.limits.credit_bytes,
                      " bytes of batches are under way; wait for acknowledgements"));
    return Admission::kDiscard;
  }
  absl::Duration wait =
      registered_.definitions->Take(CountDefinitions(batch.definitions()), absl::Now());
  if (wait > absl::ZeroDuration()) {
    RejectBatch(seq, v1::Reject::ACTION_RETRY, "too many definitions in too short a time", wait);
    return Admission::kDiscard;
  }
  context_.metrics->definitions.Increment(
      static_cast<double>(CountDefinitions(batch.definitions())));
  return skip ? Admission::kTakeAfterSkip : Admission::kTake;
}

void AgentSession::HandleBatch(DecodedBatchPtr decoded, ByteBudget::Lease lease) {
  Admission admission;
  {
    absl::MutexLock lock(&mu_);
    admission = AdmitBatch(decoded->batch, decoded->wire_bytes);
  }
  if (admission == Admission::kDiscard) return;

  absl::Status status = DecodeBatch(context_.limits, absl::Now(), &decoded->batch, &decoded->rows);
  if (!status.ok()) {
    absl::MutexLock lock(&mu_);
    if (phase_ != Phase::kOpen) return;
    LogWarning("batch refused",
               {{"host_id", host_id_}, {"seq", decoded->batch.seq()}, {"error", status}});
    RejectBatch(
        decoded->batch.seq(),
        absl::IsResourceExhausted(status) ? v1::Reject::ACTION_SPLIT : v1::Reject::ACTION_DROP,
        std::string(status.message()));
    return;
  }
  decoded->lease = std::move(lease);
  decoded->lease.Resize(decoded->MemoryBytes());
  absl::MutexLock lock(&mu_);
  if (phase_ == Phase::kOpen && !must_register_) {
    EnqueueBatch(std::move(decoded), admission == Admission::kTakeAfterSkip);
  }
}

void AgentSession::EnqueueBatch(DecodedBatchPtr batch, bool skip) {
  uint64_t seq = batch->batch.seq();
  batch->round = round_;
  unacked_bytes_ += batch->wire_bytes;
  unacked_.push_back({seq, batch->wire_bytes, std::move(batch)});
  next_seq_ = seq + 1;
  unsettled_seq_.reset();
  if (skip) {
    uint64_t lost = seq - durable_seq_ - 1;
    v1::Gap gap = GapBefore(unacked_.back().held->batch, lost, registered_.previously_seen_unix_ns);
    context_.metrics->skipped_batches.Increment(static_cast<double>(lost));
    LogWarning("batches of a host are gone for good; noted as a gap",
               {{"host_id", host_id_}, {"from_seq", durable_seq_ + 1}, {"to_seq", seq - 1}});
    holding_ = skipping_ = true;
    holding_since_ = absl::Now();
    context_.committer->Run([self = shared_from_this(), host = registered_.host.number,
                             epoch = spool_epoch_, seq, gap, round = round_] {
      self->SkipDone(round, self->context_.store->SkipTo(host, epoch, seq - 1, gap));
    });
  }
  if (!holding_) SubmitHeld();
}

void AgentSession::SubmitHeld() {
  for (Unacked& unacked : unacked_) {
    if (unacked.held == nullptr) continue;
    context_.committer->Submit(shared_from_this(), registered_.host.number,
                               std::move(unacked.held));
  }
}

void AgentSession::SkipDone(uint64_t round, const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    if (phase_ != Phase::kOpen || round != round_ || !skipping_) return;
    holding_ = skipping_ = false;
    if (status.ok()) {
      SubmitHeld();
    } else {
      RejectBatch(unacked_.front().seq, v1::Reject::ACTION_RETRY,
                  absl::StrCat("the store cannot write: ", status.message()),
                  WithSpread(kRetryAfterStoreError));
    }
  }
  Wake();
}

// ---- definitions and trace events

void AgentSession::HandleDefinitions(v1::Definitions definitions, ByteBudget::Lease lease) {
  absl::Status status = CheckDefinitions(definitions, context_.limits.max_definitions_per_message);
  if (status.ok() && definitions.dictionary_id() == 0) {
    status = absl::InvalidArgumentError("definitions: dictionary_id is missing");
  }
  uint64_t count = CountDefinitions(definitions);
  HostNumber host = 0;
  {
    absl::MutexLock lock(&mu_);
    if (phase_ != Phase::kOpen) return;
    if (!status.ok()) {
      Fail(grpc::StatusCode::INVALID_ARGUMENT, std::string(status.message()));
      return;
    }
    if (registered_.definitions->Take(count, absl::Now()) > absl::ZeroDuration()) {
      Fail(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many definitions in too short a time");
      return;
    }
    host = registered_.host.number;
  }
  context_.metrics->definitions.Increment(static_cast<double>(count));
  auto shared_lease = std::make_shared<ByteBudget::Lease>(std::move(lease));
  shared_lease->Resize(ParsedBytes(definitions));
  context_.committer->Run(
      [self = shared_from_this(), host, definitions = std::move(definitions), shared_lease] {
        self->DefinitionsStored(self->context_.store->AddDefinitions(host, definitions));
      });
}

void AgentSession::DefinitionsStored(const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    if (phase_ != Phase::kOpen) return;
    if (absl::IsInvalidArgument(status)) {
      Fail(grpc::StatusCode::INVALID_ARGUMENT, std::string(status.message()));
    } else if (holding_ && !skipping_) {
      holding_ = false;
      if (status.ok()) {
        SubmitHeld();
      } else {
        RejectBatch(unacked_.front().seq, v1::Reject::ACTION_RETRY,
                    absl::StrCat("the store cannot write: ", status.message()),
                    WithSpread(kRetryAfterStoreError));
      }
    }
  }
  Wake();
}

void AgentSession::HandleTraceEvents(v1::TraceEvents events) {
  std::string host_id;
  {
    absl::MutexLock lock(&mu_);
    if (phase_ != Phase::kOpen) return;
    host_id = host_id_;
  }
  context_.metrics->trace_events.Increment(events.events_size());
  int most = static_cast<int>(context_.limits.max_trace_events_per_message);
  if (events.events_size() > most) {
    int beyond = events.events_size() - most;
    events.set_dropped(events.dropped() + beyond);
    events.mutable_events()->DeleteSubrange(most, beyond);
  }
  context_.hub->Publish(host_id, std::move(events));
}

// ---- what the committer says

void AgentSession::OnCommitted(std::vector<Outcome> outcomes) {
  {
    absl::MutexLock lock(&mu_);
    for (Outcome& outcome : outcomes) {
      if (phase_ == Phase::kClosed) break;
      HandleOutcome(std::move(outcome));
    }
  }
  Wake();
}

void AgentSession::HandleOutcome(Outcome outcome) {
  using Kind = AppendResult::Outcome;
  const AppendResult& result = outcome.result;
  uint64_t seq = outcome.batch->batch.seq();
  if (result.outcome == Kind::kDurable || result.outcome == Kind::kDuplicate) {
    AcknowledgeUpTo(result.durable_seq);
    return;
  }
  // The agent was told meanwhile to send this again.
  if (outcome.batch->round != round_) return;
  if (phase_ != Phase::kOpen) return Forget();
  switch (result.outcome) {
    case Kind::kNeedDefinitions:
      WaitForDefinitions(std::move(outcome));
      break;
    case Kind::kOutOfOrder:
      if (holding_) {  // the one before waits for definitions; so does this
        for (Unacked& unacked : unacked_) {
          if (unacked.seq == seq) unacked.held = std::move(outcome.batch);
        }
        break;
      }
      RejectBatch(
          seq, v1::Reject::ACTION_REGISTER,
          absl::StrCat("batch ", seq, " is out of order here; durable is ", result.durable_seq));
      break;
    case Kind::kInvalid:
      LogWarning("batch refused", {{"host_id", host_id_}, {"seq", seq}, {"error", result.error}});
      RejectBatch(seq, v1::Reject::ACTION_DROP, std::string(result.error.message()));
      break;
    case Kind::kDurable:
    case Kind::kDuplicate:
      break;
  }
}

void AgentSession::WaitForDefinitions(Outcome outcome) {
  uint64_t seq = outcome.batch->batch.seq();
  uint64_t missing = CountNeeds(outcome.result.need);
  // The count of the batch before says nothing about this one, and a first request is not an
  // answer.
  bool fruitless = missing_definitions_ != 0 && missing >= missing_definitions_;
  fruitless_answers_ = fruitless ? fruitless_answers_ + 1 : 0;
  if (fruitless_answers_ >= kMaxFruitlessAnswers) {
    RejectBatch(seq, v1::Reject::ACTION_DROP,
                absl::StrCat("the batch refers to ", missing,
                             " definitions that the agent does not know either"));
    return;
  }
  missing_definitions_ = missing;
  for (Unacked& unacked : unacked_) {
    if (unacked.seq == seq) unacked.held = std::move(outcome.batch);
  }
  holding_ = true;
  holding_since_ = absl::Now();
  context_.metrics->needs.Increment();
  outbox_.Put(std::move(outcome.result.need));
}

void AgentSession::OnCommitFailed(std::vector<DecodedBatchPtr> batches, const absl::Status& error) {
  {
    absl::MutexLock lock(&mu_);
    bool current = std::any_of(batches.begin(), batches.end(),
                               [this](const auto& batch) { return batch->round == round_; });
    if (!current || unacked_.empty()) return;
    if (phase_ == Phase::kDraining) Forget();
    if (phase_ == Phase::kOpen) {
      RejectBatch(unacked_.front().seq, v1::Reject::ACTION_RETRY,
                  absl::StrCat("the store cannot write: ", error.message()),
                  WithSpread(kRetryAfterStoreError));
    }
  }
  Wake();
}

void AgentSession::AcknowledgeUpTo(uint64_t durable_seq) {
  durable_seq_ = std::max(durable_seq_, durable_seq);
  next_seq_ = std::max(next_seq_, durable_seq_ + 1);
  while (!unacked_.empty() && unacked_.front().seq <= durable_seq_) {
    unacked_bytes_ -= unacked_.front().wire_bytes;
    unacked_.pop_front();
  }
  // A batch of an earlier round that made it after all settles its Reject.
  if (unsettled_seq_ && *unsettled_seq_ <= durable_seq_) unsettled_seq_.reset();
  missing_definitions_ = 0;
  fruitless_answers_ = 0;
  PutAck();
}

void AgentSession::PutAck() {
  v1::Ack ack;
  ack.set_durable_seq(durable_seq_);
  ack.set_credit_bytes(context_.limits.credit_bytes);
  outbox_.Put(ack);
}

void AgentSession::RejectBatch(uint64_t seq, v1::Reject::Action action, const std::string& reason,
                               absl::Duration retry_after) {
  v1::Reject reject;
  reject.set_seq(seq);
  reject.set_action(action);
  reject.set_retry_after_ns(absl::ToInt64Nanoseconds(retry_after));
  reject.set_reason(reason);
  outbox_.Put(std::move(reject));
  switch (action) {
    case v1::Reject::ACTION_RETRY:
      context_.metrics->rejects_retry.Increment();
      break;
    case v1::Reject::ACTION_SPLIT:
      context_.metrics->rejects_split.Increment();
      break;
    case v1::Reject::ACTION_DROP:
      context_.metrics->rejects_drop.Increment();
      break;
    default:
      context_.metrics->rejects_register.Increment();
      must_register_ = true;
      break;
  }
  // What came before the rejected batch keeps its way to the disk, and its round.
  if (unacked_.empty() || unacked_.front().seq >= seq) {
    Forget();
  } else {
    while (!unacked_.empty() && unacked_.back().seq >= seq) {
      unacked_bytes_ -= unacked_.back().wire_bytes;
      unacked_.pop_back();
    }
  }
  if (!must_register_) {
    unsettled_seq_ = seq;
    next_seq_ = std::min(next_seq_, seq);
  }
}

void AgentSession::Forget() {
  unacked_.clear();
  unacked_bytes_ = 0;
  ++round_;
  holding_ = skipping_ = false;
  missing_definitions_ = 0;
  fruitless_answers_ = 0;
}

// ---- directives, time, and the end

void AgentSession::SendDirectives() {
  HostRecord host;
  {
    absl::MutexLock lock(&mu_);
    if (phase_ != Phase::kOpen) return;
    host = registered_.host;
  }
  v1::Directives directives = context_.directives->For(host);
  {
    absl::MutexLock lock(&mu_);
    if (phase_ != Phase::kOpen || directives.revision() <= directives_revision_) return;
    directives_revision_ = directives.revision();
    outbox_.Put(std::move(directives));
  }
  Wake();
}

void AgentSession::Tick(absl::Time now) {
  std::shared_ptr<Io> cancel;
  bool changed = false;
  {
    absl::MutexLock lock(&mu_);
    switch (phase_) {
      case Phase::kAwaitHello:
        if (now - started_ > context_.limits.hello_timeout) {
          context_.metrics->refused_hello.Increment();
          Fail(grpc::StatusCode::FAILED_PRECONDITION, "no Hello came in time");
          changed = true;
        }
        break;
      case Phase::kOpen: {
        absl::Duration patience =
            context_.budget->waiting() != 0
                ? std::min(kHoldUnderPressure, context_.limits.definitions_timeout)
                : context_.limits.definitions_timeout;
        if (holding_ && !skipping_ && now - holding_since_ > patience) {
          RejectBatch(unacked_.front().seq, v1::Reject::ACTION_RETRY,
                      "the definitions that were asked for did not come", kRetryAfterUnanswered);
          changed = true;
        }
        if (now - started_ > lifetime_) {
          Drain(grpc::Status::OK);
          changed = true;
        }
        break;
      }
      case Phase::kDraining:
      case Phase::kClosed:
        if (now - ended_ > context_.limits.finish_timeout) {
          cancel = io_.lock();
          Forget();
          changed = true;
        }
        break;
      case Phase::kRegistering:
        break;
    }
  }
  if (cancel != nullptr) cancel->Cancel();
  if (changed) Wake();
}

void AgentSession::ReceiveEnd() {
  {
    absl::MutexLock lock(&mu_);
    Drain(grpc::Status::OK);
  }
  Wake();
}

void AgentSession::ShutDown() {
  {
    absl::MutexLock lock(&mu_);
    Drain(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the aggregator is shutting down"));
  }
  Wake();
}

void AgentSession::Supersede() {
  {
    absl::MutexLock lock(&mu_);
    Fail(grpc::StatusCode::ALREADY_EXISTS, "a newer stream of the same agent took over");
  }
  Wake();
}

void AgentSession::Drain(grpc::Status status) {
  if (Ended()) return;
  // What is held waits for the agent, which is told nothing any more.
  if (holding_) Forget();
  phase_ = Phase::kDraining;
  ended_ = absl::Now();
  finish_ = std::move(status);
}

void AgentSession::Fail(grpc::StatusCode code, const std::string& message) {
  if (phase_ == Phase::kClosed) return;
  Forget();
  outbox_ = Outbox();
  phase_ = Phase::kDraining;
  ended_ = absl::Now();
  finish_ = grpc::Status(code, message);
}

void AgentSession::Closed() {
  std::string host_id;
  {
    absl::MutexLock lock(&mu_);
    if (phase_ == Phase::kClosed) return;
    Forget();
    outbox_ = Outbox();
    if (!finish_) finish_ = grpc::Status(grpc::StatusCode::CANCELLED, "the stream broke");
    phase_ = Phase::kClosed;
    ended_ = std::min(ended_, absl::Now());
    host_id = host_id_;
  }
  if (!host_id.empty()) context_.registry->Release(host_id, this);
  Wake();
}

}  // namespace fleetblame::aggregator
