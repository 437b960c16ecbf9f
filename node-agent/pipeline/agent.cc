// SPDX-License-Identifier: Apache-2.0
#include "node-agent/pipeline/agent.h"

#include <systemd/sd-daemon.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/log.h"
#include "common/utf8.h"
#include "common/version.h"
#include "node-agent/compact/coarsen.h"
#include "node-agent/host/clocks.h"
#include "node-agent/host/identity.h"
#include "node-agent/pipeline/tracer_factory.h"

namespace fleetblame::agent {
namespace {

constexpr absl::Duration kObservationInterval = absl::Seconds(5);
// How often snapshots are taken while somebody watches single IOs: their ids are known after one.
constexpr absl::Duration kTracingInterval = absl::Milliseconds(500);
constexpr absl::Duration kStopPatience = absl::Seconds(5);
// A replay is over when everything arrived, so it may take longer than a stop.
constexpr absl::Duration kReplayPatience = absl::Seconds(60);
constexpr int kMaxCollectFailures = 6;
// Longer than an agent takes to stop.
constexpr absl::Duration kLockPatience = absl::Seconds(10);
constexpr absl::Duration kLockRetry = absl::Milliseconds(100);

absl::Duration BootDuration(uint64_t from_ns, uint64_t to_ns) {
  return to_ns > from_ns ? absl::Nanoseconds(static_cast<int64_t>(to_ns - from_ns))
                         : absl::ZeroDuration();
}

}  // namespace

Agent::Agent(const AgentConfig& config, WakeUp* wake_up)
    : config_(config),
      wake_up_(wake_up),
      watchdog_({.max_cpu_percent = config.max_cpu_percent, .max_rss_bytes = config.max_rss_bytes}),
      devices_(config.devices) {}

Agent::~Agent() {
  stream_.reset();
  StopTracing("");
}

absl::StatusOr<std::unique_ptr<Agent>> Agent::Create(const AgentConfig& config, WakeUp* wake_up,
                                                     int* exit_code) {
  auto agent = std::unique_ptr<Agent>(new Agent(config, wake_up));
  if (auto status = agent->TakeLocks(exit_code); !status.ok()) return status;
  *exit_code = kExitState;
  if (auto status = agent->OpenState(); !status.ok()) return status;
  *exit_code = kExitTracer;
  if (auto status = agent->StartTracing(); !status.ok()) return status;
  agent->NoteDowntime();
  *exit_code = kExitUsage;
  if (auto status = agent->StartStream(); !status.ok()) return status;
  if (auto status = agent->StartMetrics(); !status.ok()) return status;
  *exit_code = kExitOk;
  return agent;
}

// ---------------------------------------------------------------------------------- setting up

absl::Status Agent::TakeLocks(int* exit_code) {
  // An agent that was told to stop still delivers its last window and takes its programs out of the
  // kernel; its successor must not be refused meanwhile.
  const absl::Time until = absl::Now() + kLockPatience;
  bool told = false;
  auto take = [&](const std::string& path, const std::string& what,
                  std::unique_ptr<LockFile>* lock) {
    auto taken = LockFile::Take(path, what);
    while (absl::IsAlreadyExists(taken.status()) && absl::Now() < until && !wake_up_->stopping()) {
      if (!std::exchange(told, true)) {
        LogInfo("another agent holds the lock; waiting for it to end",
                {{"lock_file", path}, {"at_most", kLockPatience}});
      }
      wake_up_->Wait(std::min(until, absl::Now() + kLockRetry));
      taken = LockFile::Take(path, what);
    }
    if (!taken.ok() && wake_up_->stopping()) {
      *exit_code = kExitOk;
      return absl::CancelledError("told to stop while another agent was still running");
    }
    *exit_code = absl::IsAlreadyExists(taken.status()) ? kExitAlreadyRunning : kExitState;
    if (taken.ok()) *lock = *std::move(taken);
    return taken.status();
  };
  if (auto status = take(config_.lock_file, "this host", &host_lock_); !status.ok()) return status;
  return take(config_.state_dir + "/lock", config_.state_dir, &state_lock_);
}

absl::Status Agent::OpenState() {
  identity_.boot_id = ReadBootId();
  identity_.hostname = config_.hostname.empty() ? ToUtf8(ReadHostname()) : config_.hostname;
  identity_.labels = config_.labels;
  if (config_.host_id.empty()) {
    auto host_id = DeriveHostId({.state_directory = config_.state_dir});
    if (!host_id.ok()) return host_id.status();
    identity_.host_id = *std::move(host_id);
  } else {
    identity_.host_id = config_.host_id;
  }
  DictionaryOptions dictionary;
  dictionary.directory = config_.state_dir + "/dictionary";
  dictionary.sync = config_.spool_sync;
  dictionary.max_intents = config_.limits.max_intents;
  auto opened = Dictionary::Open(dictionary);
  if (!opened.ok()) return opened.status();
  dictionary_ = *std::move(opened);

  SpoolOptions options;
  options.directory = config_.state_dir + "/spool";
  options.boot_id = identity_.boot_id;
  options.max_bytes = config_.spool_max_bytes;
  options.sync = config_.spool_sync;
  options.coarsen = [](std::vector<v1::Batch> batches) {
    return CoarsenBatches(std::move(batches), CutLimits());
  };
  auto spool = Spool::Open(options);
  if (!spool.ok()) return spool.status();
  spool_ = *std::move(spool);
  dictionary_->Retain(spool_->DictionariesInUse());
  return absl::OkStatus();
}

absl::Status Agent::StartTracing() {
  auto tracer = CreateTracer(config_);
  if (!tracer.ok()) return tracer.status();
  tracing_.tracer = *std::move(tracer);
  Tracer* const t = tracing_.tracer.get();
  const TracerInfo& info = t->info();
  identity_.kernel_release =
      info.kernel_release.empty() ? ReadKernelRelease() : info.kernel_release;
  identity_.tracer = info.kind;
  tracing_.names = std::make_unique<LocalNames>(t, dictionary_.get());
  CompactorOptions options;
  options.max_files = config_.limits.max_files;
  options.boot_id = identity_.boot_id;
  tracing_.compactor =
      std::make_unique<Compactor>(tracing_.names.get(), dictionary_.get(), options);
  TraceModeOptions trace;
  trace.default_events_per_second = config_.trace_events_per_second;
  tracing_.trace = std::make_unique<TraceMode>(t, tracing_.names.get(), dictionary_.get(), trace);
  {
    absl::MutexLock lock(&mutex_);
    trace_events_from_ = tracing_.trace.get();
  }
  window_began_ = last_collect_ = replay_began_ = absl::Now();
  off_since_boot_ns_ = 0;
  for (const std::string& limitation : info.limitations) {
    LogWarning("the tracer is limited here", {{"limitation", limitation}});
  }
  LogInfo("tracing", {{"tracer", info.kind},
                      {"kernel_release", identity_.kernel_release},
                      {"devices", devices_.empty() ? "all" : absl::StrJoin(devices_, ",")},
                      {"window", config_.window}});
  return absl::OkStatus();
}

// IO that went by while no agent ran, in this boot.
void Agent::NoteDowntime() {
  if (config_.tracer == TracerKind::kReplay) return;
  const SpoolState& previous = spool_->previous_state();
  const uint64_t now = BootTimeNs();
  const auto offset = static_cast<uint64_t>(RealtimeOffsetNs());
  uint64_t start = 0;  // after a reboot: from the beginning of this boot
  if (previous.boot_id.empty()) return;
  if (previous.boot_id == identity_.boot_id) {
    if (previous.last_window_end_boot_ns == 0) return;
    start = previous.last_window_end_boot_ns;
  }
  if (start >= now) return;
  v1::Gap gap;
  gap.set_start_unix_ns(start + offset);
  gap.set_end_unix_ns(now + offset);
  gap.set_cause("agent_down");
  gaps_.push_back(gap);
}

absl::Status Agent::StartStream() {
  StreamOptions options;
  options.address = config_.aggregator;
  options.tls = config_.tls;
  options.identity = identity_;
  // Files that are missing from the start are a mistake, not a change under way.
  if (auto material = ReadKeyMaterial(config_.tls); !material.ok()) return material.status();
  Session::Hooks hooks;
  hooks.on_directives = [this](const v1::Directives& directives) {
    {
      absl::MutexLock lock(&mutex_);
      new_directives_ = directives;
    }
    wake_up_->Poke();
  };
  hooks.take_trace_events = [this]() -> std::optional<v1::TraceEvents> {
    absl::MutexLock lock(&mutex_);
    return trace_events_from_ == nullptr ? std::nullopt : trace_events_from_->TakeEvents();
  };
  stream_ = std::make_unique<StreamClient>(options, spool_.get(), dictionary_.get(), hooks);
  stream_->Start();
  return absl::OkStatus();
}

absl::Status Agent::StartMetrics() {
  if (config_.metrics_address.empty()) return absl::OkStatus();
  UpdateMetrics();
  auto server = MetricsServer::Start(config_.metrics_address, self_metrics_.registry());
  if (!server.ok()) return server.status();
  metrics_server_ = *std::move(server);
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------------- main loop

int Agent::Run() {
  LogInfo("agent is running", {{"version", kVersion},
                               {"host_id", identity_.host_id},
                               {"aggregator", config_.aggregator},
                               {"state_dir", config_.state_dir}});
  ::sd_notify(0, "READY=1");
  next_observation_ = absl::Now();
  while (!wake_up_->stopping() && !replay_over_ && !failed_) {
    Tick(absl::Now());
    if (replay_over_ || failed_) break;
    wake_up_->Wait(NextWake(absl::Now()));
  }
  return Finish();
}

absl::Duration Agent::WindowLength() const {
  const absl::Duration length =
      directed_window_ > absl::ZeroDuration() ? directed_window_ : config_.window;
  return length * watchdog_.window_factor();
}

bool Agent::TracerIsDue(absl::Time now) const {
  if (now - window_began_ >= WindowLength()) return true;
  return tracing_.trace != nullptr && tracing_.trace->on() &&
         now - last_collect_ >= kTracingInterval;
}

absl::Time Agent::NextWake(absl::Time now) const {
  absl::Time wake = next_observation_;
  if (replayed_) {
    const absl::Duration recorded = BootDuration(replay_start_boot_ns_, replayed_->end_boot_ns);
    return std::min(wake, replay_began_ + recorded / config_.replay.speed);
  }
  if (config_.tracer == TracerKind::kReplay) return now;
  wake = std::min(wake, window_began_ + WindowLength());
  if (tracing_.trace != nullptr && tracing_.trace->on()) {
    wake = std::min(wake, last_collect_ + kTracingInterval);
  }
  return wake;
}

void Agent::Tick(absl::Time now) {
  ApplyDirectives();
  // absl::Now is realtime: a step of that clock must not stop the windows.
  if (now < window_began_ || now < last_collect_) window_began_ = last_collect_ = now;
  if (next_observation_ > now + kObservationInterval) next_observation_ = now;
  if (now >= next_observation_) {
    next_observation_ = now + kObservationInterval;
    ObserveUsage(now);
    UpdateMetrics();
  }
  if (config_.tracer == TracerKind::kReplay) {
    if (!CollectReplayed(now)) replay_over_ = true;
  } else if (TracerIsDue(now)) {
    CollectAndSpool();
  }
}

void Agent::CollectAndSpool() {
  const absl::Time now = absl::Now();
  const bool window_over = now - window_began_ >= WindowLength();
  if (tracing_.tracer == nullptr) {
    if (window_over) SpoolWindowWithoutTracer();
    return;
  }
  if (!Collect()) {
    replay_over_ = true;
    return;
  }
  last_collect_ = now;
  if (tracing_.trace->Resolve(now, RealtimeOffsetNs())) stream_->Notify();
  if (window_over) SpoolWindow();
}

bool Agent::Collect() {
  tracing_.trace->BeforeCollect();
  auto snapshot = tracing_.tracer->Collect();
  if (absl::IsOutOfRange(snapshot.status())) return false;
  if (!snapshot.ok()) {
    ++collect_errors_;
    LogError("the tracer cannot be read", {{"status", snapshot.status()}});
    // One that stays broken is left to whoever restarts the agent, which makes it anew.
    if (++collect_failures_ >= kMaxCollectFailures) failed_ = true;
    return true;
  }
  collect_failures_ = 0;
  if (auto status = tracing_.names->Define(*snapshot); !status.ok()) {
    LogWarning("kernel symbols cannot be read; stacks stay without names", {{"status", status}});
  }
  const std::string& limitation = tracing_.names->limitation();
  if (limitation != symbols_told_) {
    if (!limitation.empty()) LogWarning("kernel symbols", {{"limitation", limitation}});
    symbols_told_ = limitation;
  }
  CountTagWaits(*snapshot);
  tracing_.compactor->Add(*snapshot);
  return true;
}

void Agent::CountTagWaits(const Snapshot& snapshot) {
  if (!snapshot.tag_waits.has_value()) return;
  for (const v1::TagWaitRow& row : snapshot.tag_waits->rows()) {
    tag_waits_.waits += row.waits();
    tag_waits_.wait_ns += row.wait_ns();
  }
  tag_waits_.open = snapshot.tag_waits->open_waits();
  tag_waits_.source = snapshot.tag_waits->source();
}

// Each recorded window is one window again, at the time that the replay speed gives it.
bool Agent::CollectReplayed(absl::Time now) {
  if (!replayed_) {
    tracing_.trace->BeforeCollect();
    auto snapshot = tracing_.tracer->Collect();
    if (absl::IsOutOfRange(snapshot.status())) return false;
    if (!snapshot.ok()) {
      LogError("the recording cannot be read on", {{"status", snapshot.status()}});
      failed_ = true;
      return false;
    }
    if (replay_start_boot_ns_ == 0) replay_start_boot_ns_ = snapshot->start_boot_ns;
    replayed_ = *std::move(snapshot);
  }
  if (config_.replay.speed > 0) {
    const absl::Duration recorded = BootDuration(replay_start_boot_ns_, replayed_->end_boot_ns);
    if (now < replay_began_ + recorded / config_.replay.speed) return true;
  }
  if (auto status = tracing_.names->Define(*replayed_); !status.ok()) {
    LogWarning("recorded symbols cannot be read", {{"status", status}});
  }
  CountTagWaits(*replayed_);
  tracing_.compactor->Add(*replayed_);
  replayed_.reset();
  if (tracing_.trace->Resolve(now, RealtimeOffsetNs())) stream_->Notify();
  SpoolWindow();
  return true;
}

std::map<std::string, uint64_t> Agent::OwnLosses() {
  std::map<std::string, uint64_t> losses;
  const SpoolStats spool = spool_->stats();
  losses["spool_dropped_batches"] = spool.dropped_batches - reported_spool_.dropped_batches;
  losses["spool_coarsened_batches"] = spool.coarsened_batches - reported_spool_.coarsened_batches;
  losses["spool_corrupt_records"] = spool.corrupt_records - reported_spool_.corrupt_records;
  losses["spool_write_errors"] = spool.write_errors - reported_spool_.write_errors;
  losses["rejected_batches"] = spool.rejected_batches - reported_spool_.rejected_batches;
  reported_spool_ = spool;
  const uint64_t lost = dictionary_->stats().lost_definitions;
  losses["definitions_lost"] = lost - reported_definitions_lost_;
  reported_definitions_lost_ = lost;
  losses["collect_errors"] = collect_errors_ - reported_collect_errors_;
  reported_collect_errors_ = collect_errors_;
  // Windows for which the watchdog had asked for less work.
  losses["watchdog_shed"] = static_cast<uint64_t>(watchdog_.step());
  return losses;
}

void Agent::SpoolWindow() {
  window_began_ = absl::Now();
  if (tracing_.compactor->empty()) return;
  Compactor::Extras extras;
  extras.realtime_offset_ns = RealtimeOffsetNs();
  extras.losses = OwnLosses();
  extras.gaps = std::exchange(gaps_, {});
  std::vector<v1::Batch> batches = tracing_.compactor->Finish(extras);
  // Definitions first: a batch without them would be worth nothing after a crash.
  if (auto status = dictionary_->Persist(); !status.ok()) {
    LogError("definitions cannot be written; they are kept in memory", {{"status", status}});
  }
  for (const v1::Batch& batch : batches) rows_ += batch.row_count();
  ++windows_;
  spool_->Append(std::move(batches));
  stream_->Notify();
  if (dictionary_->full()) {
    LogInfo("the dictionary is full; a new one begins");
    dictionary_->NewDictionary();
  }
}

// Keeps the host visible, and says that nothing is known.
void Agent::SpoolWindowWithoutTracer() {
  const uint64_t now = BootTimeNs();
  const int64_t offset = RealtimeOffsetNs();
  v1::Batch batch;
  v1::Window* window = batch.mutable_window();
  window->set_start_boot_ns(off_since_boot_ns_);
  window->set_end_boot_ns(std::max(now, off_since_boot_ns_ + 1));
  window->set_realtime_offset_ns(offset);
  window->set_boot_id(identity_.boot_id);
  v1::Gap* gap = batch.add_gaps();
  gap->set_start_unix_ns(off_since_boot_ns_ + static_cast<uint64_t>(offset));
  gap->set_end_unix_ns(now + static_cast<uint64_t>(offset));
  gap->set_cause("tracer_off");
  for (const auto& [name, delta] : OwnLosses()) {
    if (delta == 0) continue;
    v1::LossCounter* loss = batch.add_losses();
    loss->set_name(name);
    loss->set_delta(delta);
  }
  std::vector<v1::Batch> batches;
  batches.push_back(std::move(batch));
  spool_->Append(std::move(batches));
  stream_->Notify();
  off_since_boot_ns_ = now;
  window_began_ = absl::Now();
}

// ---------------------------------------------------------------------------------- directives

void Agent::ApplyDirectives() {
  {
    absl::MutexLock lock(&mutex_);
    if (!new_directives_) return;
    directives_ = *std::move(new_directives_);
    new_directives_.reset();
  }
  ApplyDevices(directives_);
  directed_window_ = absl::ZeroDuration();
  if (directives_.has_window_ns()) {
    const absl::Duration window = absl::Nanoseconds(
        static_cast<int64_t>(std::min<uint64_t>(directives_.window_ns(), INT64_MAX)));
    if (config_.refuse_window) {
      LogWarning("a directive to change the window is refused by configuration");
    } else {
      directed_window_ = std::clamp(window, absl::Seconds(1), absl::Hours(1));
      LogInfo("the window is as directed", {{"window", directed_window_}});
    }
  }
  if (tracing_.trace == nullptr) return;
  const v1::TraceDirective* trace = directives_.has_trace() ? &directives_.trace() : nullptr;
  if (trace != nullptr && (config_.refuse_trace || !watchdog_.trace())) {
    LogWarning(config_.refuse_trace ? "trace mode is refused by configuration"
                                    : "trace mode is refused while the watchdog sheds load");
    trace = nullptr;
  }
  if (auto status = tracing_.trace->Apply(trace, absl::Now()); !status.ok()) {
    LogWarning("trace mode cannot be switched on", {{"status", status}});
  }
}

void Agent::ApplyDevices(const v1::Directives& directives) {
  std::vector<std::string> wanted = config_.devices;
  if (directives.has_devices()) {
    if (config_.refuse_devices) {
      LogWarning("a directive to change the devices is refused by configuration");
    } else {
      wanted = {directives.devices().patterns().begin(), directives.devices().patterns().end()};
    }
  }
  if (wanted == devices_ || tracing_.tracer == nullptr) return;
  if (auto status = tracing_.tracer->SetDevices({wanted}); !status.ok()) {
    LogWarning("the devices cannot be changed as directed; the old ones stay",
               {{"devices", absl::StrJoin(wanted, ",")}, {"status", status}});
    return;
  }
  devices_ = wanted;
  LogInfo("other devices are watched now",
          {{"devices", wanted.empty() ? "all" : absl::StrJoin(wanted, ",")}});
}

// ---------------------------------------------------------------------------------- watchdog

void Agent::ObserveUsage(absl::Time now) {
  const auto usage = ReadUsage("/proc/self");
  if (!usage) return;
  const int before = watchdog_.step();
  if (watchdog_.Observe(now, *usage) == before) return;
  LogWarning(watchdog_.step() > before ? "the agent exceeds its budget and sheds load"
                                       : "the agent is within its budget and sheds less load",
             {{"step", watchdog_.step()}, {"reason", watchdog_.reason()}});
  FollowWatchdog();
}

void Agent::FollowWatchdog() {
  if (tracing_.tracer == nullptr) {
    if (!watchdog_.tracer()) return;
    v1::Gap gap;
    const auto offset = static_cast<uint64_t>(RealtimeOffsetNs());
    gap.set_start_unix_ns(off_since_boot_ns_ + offset);
    if (auto status = StartTracing(); !status.ok()) {
      LogError("the tracer cannot be started again", {{"status", status}});
      failed_ = true;
      return;
    }
    gap.set_end_unix_ns(BootTimeNs() + offset);
    gap.set_cause("tracer_off");
    gaps_.push_back(gap);
    if (devices_ != config_.devices) {
      const auto wanted = std::exchange(devices_, config_.devices);
      if (tracing_.tracer->SetDevices({wanted}).ok()) devices_ = wanted;
    }
  } else if (!watchdog_.tracer()) {
    StopTracing("the agent is beyond its budget");
    return;
  }
  tracing_.compactor->set_max_files(watchdog_.files() ? config_.limits.max_files : 0);
  if (!watchdog_.trace()) tracing_.trace->Stop();
}

void Agent::StopTracing(const std::string& cause) {
  if (tracing_.tracer == nullptr) return;
  if (!cause.empty()) {
    LogWarning("tracing stops", {{"cause", cause}});
    // What was seen so far is kept.
    if (Collect()) SpoolWindow();
  }
  {
    absl::MutexLock lock(&mutex_);
    trace_events_from_ = nullptr;
  }
  off_since_boot_ns_ = BootTimeNs();
  tracing_.trace.reset();
  tracing_.compactor.reset();
  tracing_.names.reset();
  tracing_.tracer.reset();
}

// ---------------------------------------------------------------------------------- metrics

void Agent::UpdateMetrics() {
  SelfMetrics& m = self_metrics_;
  m.SetTotal("windows_total", "Windows collected and spooled.", static_cast<double>(windows_));
  m.SetTotal("rows_total", "Rows spooled.", static_cast<double>(rows_));
  m.SetTotal("collect_errors_total", "Times the tracer could not be read.",
             static_cast<double>(collect_errors_));
  m.SetTotal("tag_waits_total", "Times that a thread slept for a tag of a disk's queue.",
             static_cast<double>(tag_waits_.waits));
  m.SetTotal("tag_wait_seconds_total", "Time that threads slept for tags.",
             static_cast<double>(tag_waits_.wait_ns) / 1e9);
  m.SetGauge("tag_waits_open", "Threads that slept for a tag when a window ended.",
             static_cast<double>(tag_waits_.open));
  m.SetGauge("tag_wait_source",
             "How tag waits are seen: 0 not at all, 1 tracepoint, 2 fentry, 3 kprobe, 4 inferred.",
             tag_waits_.source);
  m.SetGauge("watchdog_step", "How much load is shed: 0 nothing, 4 everything.", watchdog_.step());
  m.SetGauge("cpu_percent", "CPU of one core, over the last minute.", watchdog_.cpu_percent());

  const SpoolStats spool = spool_->stats();
  m.SetGauge("spool_bytes", "Bytes of the spool on disk.",
             static_cast<double>(spool.bytes_on_disk));
  m.SetGauge("spool_memory_bytes", "Bytes of batches that the disk did not take.",
             static_cast<double>(spool.bytes_in_memory));
  m.SetGauge("spool_segments", "Files of the spool.", static_cast<double>(spool.segments));
  m.SetGauge("spool_unacknowledged_batches", "Batches that the aggregator has not acknowledged.",
             spool.last_seq == 0 ? 0 : static_cast<double>(spool.last_seq - spool.first_seq + 1));
  m.SetTotal("spool_write_errors_total", "Failed writes to the spool.",
             static_cast<double>(spool.write_errors));
  m.SetTotal("spool_dropped_batches_total", "Batches dropped because the spool was full.",
             static_cast<double>(spool.dropped_batches));
  m.SetTotal("spool_coarsened_batches_total", "Batches merged because the spool was full.",
             static_cast<double>(spool.coarsened_batches));
  m.SetTotal("spool_corrupt_records_total", "Damaged records found.",
             static_cast<double>(spool.corrupt_records));
  m.SetTotal("spool_torn_bytes_total", "Bytes of torn tails cut off.",
             static_cast<double>(spool.torn_bytes));

  const Dictionary::Stats dictionary = dictionary_->stats();
  const char* const kinds[] = {"intent", "actor", "device", "file"};
  for (int kind = 0; kind < kDefinitionKinds; ++kind) {
    m.SetGauge("dictionary_numbers", "Numbers given out in the current dictionary.",
               dictionary.numbers[kind], {{"kind", kinds[kind]}});
  }
  m.SetGauge("dictionaries", "Dictionaries kept.", static_cast<double>(dictionary.dictionaries));
  m.SetTotal("definitions_lost_total", "Definitions that were asked for and are gone.",
             static_cast<double>(dictionary.lost_definitions));

  if (tracing_.trace != nullptr) {
    m.SetGauge("trace_on", "Whether trace mode is on.", tracing_.trace->on() ? 1 : 0);
    m.SetTotal("trace_dropped_total", "Trace records that did not fit.",
               static_cast<double>(tracing_.trace->dropped()));
  }
  if (stream_ == nullptr) return;
  const StreamStats stream = stream_->stats();
  const SessionCounters& s = stream.session;
  m.SetGauge("connected", "Whether a stream to the aggregator is established.",
             stream.connected ? 1 : 0);
  m.SetTotal("connections_total", "Streams established.", static_cast<double>(stream.connections));
  m.SetTotal("connection_failures_total", "Streams that failed or broke.",
             static_cast<double>(stream.connection_failures));
  m.SetTotal("batches_sent_total", "Batches sent.", static_cast<double>(s.batches_sent));
  m.SetTotal("batch_bytes_sent_total", "Bytes of batches sent, before TLS and HTTP/2.",
             static_cast<double>(s.batch_bytes_sent));
  m.SetTotal("rows_sent_total", "Rows sent.", static_cast<double>(s.rows_sent));
  m.SetTotal("definitions_sent_total", "Definitions sent.",
             static_cast<double>(s.definitions_sent));
  m.SetTotal("acks_total", "Acknowledgements received.", static_cast<double>(s.acks));
  m.SetTotal("needs_total", "Requests for definitions received.", static_cast<double>(s.needs));
  m.SetTotal("protocol_errors_total", "Messages of the aggregator that broke the protocol.",
             static_cast<double>(s.protocol_errors));
  m.SetTotal("trace_events_sent_total", "Trace events sent.",
             static_cast<double>(s.trace_events_sent));
  const std::pair<const char*, uint64_t> rejects[] = {{"retry", s.rejects_retry},
                                                      {"split", s.rejects_split},
                                                      {"drop", s.rejects_drop},
                                                      {"register", s.rejects_register}};
  for (const auto& [action, count] : rejects) {
    m.SetTotal("rejects_total", "Batches refused by the aggregator.", static_cast<double>(count),
               {{"action", action}});
  }
  m.SetGauge("clock_skew_seconds", "Clock of the aggregator minus clock of this host.",
             static_cast<double>(s.clock_skew_ns) / 1e9);
}

// ---------------------------------------------------------------------------------- the end

int Agent::Finish() {
  ::sd_notify(0, "STOPPING=1");
  LogInfo("stopping: collecting and delivering the last window");
  if (tracing_.tracer != nullptr && config_.tracer != TracerKind::kReplay && !failed_) {
    if (Collect()) SpoolWindow();
  }
  if (tracing_.trace != nullptr) tracing_.trace->Stop();
  const bool delivered = stream_->Stop(replay_over_ ? kReplayPatience : kStopPatience);
  if (delivered) spool_->Settle();
  UpdateMetrics();
  const SpoolStats spool = spool_->stats();
  if (delivered) {
    LogInfo("everything was delivered", {{"windows", windows_}, {"rows", rows_}});
  } else {
    LogInfo("what was not delivered stays in the spool for the next start",
            {{"first_seq", spool.first_seq}, {"last_seq", spool.last_seq}});
  }
  if (failed_) return kExitFailure;
  // A replay that did not arrive has not done what it was started for.
  return replay_over_ && !delivered ? kExitFailure : kExitOk;
}

}  // namespace fleetblame::agent
