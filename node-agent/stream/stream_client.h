// SPDX-License-Identifier: Apache-2.0
//
// Keeps a stream to the aggregator open and runs a Session over it: connects, waits with full
// jitter between attempts, follows certificate files, notices a peer that no longer answers.
//
// Threading: Start, Stop and the destructor from one thread; Notify and stats from any. Hooks are
// called on the client's own thread.
#ifndef NODE_AGENT_STREAM_STREAM_CLIENT_H_
#define NODE_AGENT_STREAM_STREAM_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "node-agent/config/config.h"
#include "node-agent/dictionary/dictionary.h"
#include "node-agent/spool/spool.h"
#include "node-agent/stream/backoff.h"
#include "node-agent/stream/connection.h"
#include "node-agent/stream/credentials.h"
#include "node-agent/stream/session.h"

namespace fleetblame::agent {

struct StreamOptions {
  std::string address;
  TlsConfig tls;
  HelloIdentity identity;
  absl::Duration first_backoff = absl::Seconds(1);
  absl::Duration longest_backoff = absl::Minutes(1);
  absl::Duration hello_timeout = absl::Seconds(30);
  // A batch that is neither acknowledged nor refused for so long, or a message that does not leave,
  // means that nobody is there.
  absl::Duration silence_timeout = absl::Seconds(90);
  absl::Duration certificate_check_interval = absl::Minutes(1);
};

struct StreamStats {
  SessionCounters session;
  bool connected = false;
  uint64_t connections = 0;  // streams that got a HelloAck
  uint64_t connection_failures = 0;
  std::string last_error;
};

class StreamClient {
 public:
  // Spool and dictionary must outlive this object.
  StreamClient(StreamOptions options, Spool* spool, Dictionary* dictionary, Session::Hooks hooks);
  ~StreamClient();

  void Start();
  // Something was spooled, or trace events wait.
  void Notify();
  // Delivers what is spooled, for at most `patience`, then ends the stream. Returns whether
  // everything was acknowledged.
  bool Stop(absl::Duration patience);

  StreamStats stats() const;

 private:
  void Run();
  // One connection from beginning to end. OK when the aggregator ended it in order.
  absl::Status RunConnection();
  absl::Status Converse(Connection& connection, Session& session, const KeyMaterial& material);
  absl::Status Pump(Connection& connection, Session& session);
  absl::Status EndOf(Connection& connection);
  void WaitUntil(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  bool MustStop() const ABSL_LOCKS_EXCLUDED(mutex_);
  bool Delivered() const;
  void PublishCounters() ABSL_LOCKS_EXCLUDED(mutex_);

  const StreamOptions options_;
  Spool* const spool_;
  Dictionary* const dictionary_;
  const Session::Hooks hooks_;

  // The thread's own.
  Backoff backoff_;
  SessionCounters counters_;
  Session::DirectiveMark directive_mark_;
  absl::Time last_heard_;

  mutable absl::Mutex mutex_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time stop_deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  StreamStats stats_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

// Whether a channel to the address can be made (and TLS agreed upon) within `timeout`; for --check.
absl::Status ProbeAggregator(const std::string& address, const TlsConfig& tls,
                             absl::Duration timeout);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_STREAM_STREAM_CLIENT_H_
