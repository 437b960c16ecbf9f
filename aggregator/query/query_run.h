// SPDX-License-Identifier: Apache-2.0
//
// What the handler of one RPC has at hand, and the checks that all of them share. A handler is a
// function `absl::Status Name(QueryRun&, const NameRequest&, NameResponse*)` in a file of its own;
// it runs on a thread of the query pool, blocks as long as it works, and leaves a response that
// counts only when the status is OK.
//
// Errors of the checks: INVALID_ARGUMENT with the field's name and what is allowed.
#ifndef AGGREGATOR_QUERY_QUERY_RUN_H_
#define AGGREGATOR_QUERY_QUERY_RUN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregator/query/definition_cache.h"
#include "aggregator/query/group_scan.h"
#include "aggregator/query/host_set.h"
#include "aggregator/query/names.h"
#include "aggregator/query/query_context.h"
#include "aggregator/query/query_options.h"
#include "aggregator/query/scan.h"
#include "aggregator/query/task_pool.h"
#include "aggregator/query/time_range.h"
#include "aggregator/store/store.h"
#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::aggregator {

struct QueryRun {
  const ReadView* view = nullptr;
  DefinitionCache* cache = nullptr;
  TaskPool* helpers = nullptr;
  QueryContext* context = nullptr;
  const QueryOptions* options = nullptr;
  uint64_t now_unix_ns = 0;
  // host_ids that stream at this moment.
  std::set<std::string> connected;
};

inline constexpr uint32_t kMaxLimit = 10'000;

// `limit` with 0 replaced by `by_default`.
absl::StatusOr<size_t> ResolveLimit(uint32_t limit, size_t by_default);
absl::Status CheckSide(v1::Side side);
absl::StatusOr<v1::OrderBy> ResolveOrder(v1::OrderBy order);

// Hosts, range and scan environment, which every handler begins with.
class QueryFrame {
 public:
  static absl::StatusOr<std::unique_ptr<QueryFrame>> Make(const QueryRun& run,
                                                          const std::string& selector,
                                                          const v1::TimeRange& range);

  const HostSet& hosts() const { return hosts_; }
  const ResolvedRange& range() const { return range_; }
  void set_range(const ResolvedRange& range) { range_ = range; }
  const ScanEnv& env() const { return env_; }
  Names* names() { return &names_; }

  absl::Status Summarize(const ScanFacts& facts, const Totals& totals, v1::Summary* out) const;

  QueryFrame(const QueryFrame&) = delete;
  QueryFrame& operator=(const QueryFrame&) = delete;

 private:
  QueryFrame(const QueryRun& run, HostSet hosts, const ResolvedRange& range);

  const QueryOptions* options_;
  HostSet hosts_;
  ResolvedRange range_;
  ScanEnv env_;
  Names names_;
};

// Rows of an answer.
absl::Status StoreRanking(const Ranking& ranking, const Grouping& grouping, QueryFrame* frame,
                          google::protobuf::RepeatedPtrField<v1::TopResponse::Row>* out);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_QUERY_QUERY_RUN_H_
