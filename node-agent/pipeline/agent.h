// SPDX-License-Identifier: Apache-2.0
//
// The whole pipeline of one host:
//
//   tracer ─► names, compaction ─► spool ══ stream ══► aggregator
//
// The main thread collects, compacts and spools; the stream has a thread of its own and reads the
// spool; trace mode polls the ring buffer on a third. What the aggregator directs is handed to the
// main thread, which alone talks to the tracer.
//
// Threading: Create, Run and the destructor on the main thread. Errors: Create says what could not
// be set up and which exit code that is.
#ifndef NODE_AGENT_PIPELINE_AGENT_H_
#define NODE_AGENT_PIPELINE_AGENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/metrics.h"
#include "node-agent/compact/compactor.h"
#include "node-agent/compact/local_names.h"
#include "node-agent/config/config.h"
#include "node-agent/dictionary/dictionary.h"
#include "node-agent/host/lock_file.h"
#include "node-agent/pipeline/exit_codes.h"
#include "node-agent/pipeline/self_metrics.h"
#include "node-agent/pipeline/wake_up.h"
#include "node-agent/spool/spool.h"
#include "node-agent/stream/stream_client.h"
#include "node-agent/trace/trace_mode.h"
#include "node-agent/tracer/tracer.h"
#include "node-agent/watchdog/watchdog.h"
#include "proto/fleetblame/v1/control.pb.h"

namespace fleetblame::agent {

class Agent {
 public:
  // On failure `*exit_code` is set. `wake_up` must outlive this object.
  static absl::StatusOr<std::unique_ptr<Agent>> Create(const AgentConfig& config, WakeUp* wake_up,
                                                       int* exit_code);
  ~Agent();

  // Works until a signal comes or a replay ends; then collects and spools the last window and tries
  // for a few seconds to deliver it. Returns the exit code.
  int Run();

 private:
  // What lives and dies with a tracer.
  struct Tracing {
    std::unique_ptr<Tracer> tracer;
    std::unique_ptr<LocalNames> names;
    std::unique_ptr<Compactor> compactor;
    std::unique_ptr<TraceMode> trace;
  };

  explicit Agent(const AgentConfig& config, WakeUp* wake_up);

  // ---- setting up
  absl::Status TakeLocks(int* exit_code);
  absl::Status OpenState();
  absl::Status StartTracing();
  absl::Status StartStream();
  absl::Status StartMetrics();
  void NoteDowntime();

  // ---- the main loop
  void Tick(absl::Time now);
  bool TracerIsDue(absl::Time now) const;
  void CollectAndSpool();
  // One Collect into the current window; false when there will never be another snapshot.
  bool Collect();
  void CountTagWaits(const Snapshot& snapshot);
  bool CollectReplayed(absl::Time now);
  void SpoolWindow();
  void SpoolWindowWithoutTracer();
  void ApplyDirectives();
  void ApplyDevices(const v1::Directives& directives);
  void ObserveUsage(absl::Time now);
  void FollowWatchdog();
  void StopTracing(const std::string& cause);
  void UpdateMetrics();
  absl::Duration WindowLength() const;
  absl::Time NextWake(absl::Time now) const;
  std::map<std::string, uint64_t> OwnLosses();
  int Finish();

  const AgentConfig config_;
  WakeUp* const wake_up_;
  HelloIdentity identity_;
  std::unique_ptr<LockFile> host_lock_;
  std::unique_ptr<LockFile> state_lock_;
  std::unique_ptr<Dictionary> dictionary_;
  std::unique_ptr<Spool> spool_;
  Tracing tracing_;
  Watchdog watchdog_;
  SelfMetrics self_metrics_;
  std::unique_ptr<MetricsServer> metrics_server_;

  // Asked of the stream's thread, which may outlive a tracer: guarded.
  absl::Mutex mutex_;
  std::optional<v1::Directives> new_directives_ ABSL_GUARDED_BY(mutex_);
  TraceMode* trace_events_from_ ABSL_GUARDED_BY(mutex_) = nullptr;

  // The main thread's own.
  v1::Directives directives_;
  absl::Duration directed_window_ = absl::ZeroDuration();  // 0 = as configured
  std::vector<std::string> devices_;
  std::vector<v1::Gap> gaps_;  // to be reported with the next window
  uint64_t off_since_boot_ns_ = 0;
  absl::Time window_began_;
  absl::Time last_collect_;
  absl::Time next_observation_;
  absl::Time replay_began_;
  std::optional<Snapshot> replayed_;  // collected, but its time has not come
  uint64_t replay_start_boot_ns_ = 0;
  bool replay_over_ = false;
  int collect_failures_ = 0;
  bool failed_ = false;
  SpoolStats reported_spool_;
  uint64_t reported_definitions_lost_ = 0;
  uint64_t collect_errors_ = 0;
  struct TagWaitTotals {
    uint64_t waits = 0;
    uint64_t wait_ns = 0;
    uint64_t open = 0;  // at the end of the last window
    int source = 0;     // v1::TagWaitSource
  };
  TagWaitTotals tag_waits_;
  uint64_t reported_collect_errors_ = 0;
  uint64_t windows_ = 0;
  uint64_t rows_ = 0;
  std::string symbols_told_;

  // Last, so that its thread is gone before anything it uses.
  std::unique_ptr<StreamClient> stream_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_PIPELINE_AGENT_H_
