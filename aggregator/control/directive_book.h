// SPDX-License-Identifier: Apache-2.0
//
// The directive sets that operators made, and what follows from them for one host: the newest whole
// set whose selector matches it, plus trace mode as the hub says.
//
// Revisions count all changes together, so every agent sees them increase; they begin with the
// highest that is stored and never below the clock in microseconds, so they increase across
// restarts too.
//
// Threading: any thread.
#ifndef AGGREGATOR_CONTROL_DIRECTIVE_BOOK_H_
#define AGGREGATOR_CONTROL_DIRECTIVE_BOOK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "aggregator/ingest/directive_source.h"
#include "aggregator/store/store.h"
#include "aggregator/trace_hub/trace_hub.h"
#include "common/selector/selector.h"
#include "proto/fleetblame/v1/control.pb.h"

namespace fleetblame::aggregator {

class DirectiveBook final : public DirectiveSource {
 public:
  // Reads the stored sets. `store` and `hub` must outlive it.
  static absl::StatusOr<std::unique_ptr<DirectiveBook>> Open(Store* store, TraceHub* hub);

  // Stores the set, then lets it hold; returns its revision. INVALID_ARGUMENT for a bad name,
  // selector or directive, RESOURCE_EXHAUSTED beyond the number of sets; otherwise what the store
  // says.
  absl::StatusOr<uint64_t> Set(const v1::SetDirectivesRequest& request);
  // NOT_FOUND when there is no such set.
  absl::StatusOr<uint64_t> Delete(const std::string& name);
  std::vector<v1::ListDirectivesResponse::Set> List() const;

  // The trace of some host changed: what For returns from now on is newer than before.
  void TraceChanged();

  v1::Directives For(const HostRecord& host) const override;

 private:
  struct Entry {
    v1::ListDirectivesResponse::Set set;
    Selector selector;
  };

  DirectiveBook(Store* store, TraceHub* hub) : store_(store), hub_(hub) {}
  uint64_t NextRevision() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Store* const store_;
  TraceHub* const hub_;

  // Serializes changes; held while the store writes.
  absl::Mutex change_mu_;
  mutable absl::Mutex mu_ ABSL_ACQUIRED_AFTER(change_mu_);
  uint64_t revision_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, Entry> sets_ ABSL_GUARDED_BY(mu_);
};

// INVALID_ARGUMENT with a sentence when an agent could not follow them.
absl::Status CheckDirectives(const v1::Directives& directives);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_CONTROL_DIRECTIVE_BOOK_H_
