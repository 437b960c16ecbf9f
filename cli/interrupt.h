// SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C ends a streaming call cleanly instead of killing the process.
#ifndef CLI_INTERRUPT_H_
#define CLI_INTERRUPT_H_

#include "grpcpp/client_context.h"

namespace fleetblame::cli {

// Cancels `context` when SIGINT, SIGTERM or SIGHUP arrives; restores the default afterwards. A
// second signal kills as usual. One at a time; created before other threads block on signals.
class CancelOnSignal {
 public:
  explicit CancelOnSignal(grpc::ClientContext* context);
  ~CancelOnSignal();
  CancelOnSignal(const CancelOnSignal&) = delete;
  CancelOnSignal& operator=(const CancelOnSignal&) = delete;

 private:
  struct Watcher;
  Watcher* watcher_;
};

}  // namespace fleetblame::cli

#endif  // CLI_INTERRUPT_H_
