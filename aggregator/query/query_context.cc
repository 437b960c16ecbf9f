// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/query_context.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace fleetblame::aggregator {
namespace {

constexpr char kHowToNarrow[] =
    "ask for a shorter time range, fewer hosts (a selector) or fewer dimensions";

}  // namespace

QueryContext::QueryContext(const QueryBudget& budget, absl::Time stop_at,
                           std::function<bool()> cancelled)
    : budget_(budget), stop_at_(stop_at), cancelled_(std::move(cancelled)) {}

bool QueryContext::Charge(uint64_t rows, uint64_t bytes) {
  if (!KeepGoing()) return false;
  uint64_t rows_now = rows_.fetch_add(rows, std::memory_order_relaxed) + rows;
  uint64_t bytes_now = bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (rows_now > budget_.max_rows) {
    Fail(absl::ResourceExhaustedError(absl::StrCat("the query would read more than ",
                                                   budget_.max_rows, " rows; ", kHowToNarrow)));
    return false;
  }
  if (bytes_now > budget_.max_bytes) {
    Fail(absl::ResourceExhaustedError(absl::StrCat("the query would read more than ",
                                                   budget_.max_bytes, " bytes; ", kHowToNarrow)));
    return false;
  }
  return true;
}

bool QueryContext::ChargeGroup() {
  if (groups_.fetch_add(1, std::memory_order_relaxed) < budget_.max_groups) return true;
  Fail(absl::ResourceExhaustedError(
      absl::StrCat("the answer would have more than ", budget_.max_groups,
                   " groups; group by fewer dimensions, filter, or select fewer hosts")));
  return false;
}

bool QueryContext::KeepGoing() {
  if (failed_.load(std::memory_order_relaxed)) return false;
  if (cancelled_ && cancelled_()) {
    Fail(absl::CancelledError("the client has gone away"));
    return false;
  }
  if (absl::Now() >= stop_at_) {
    Fail(absl::ResourceExhaustedError(absl::StrCat("the query ran out of time after ", rows(),
                                                   " rows; ", kHowToNarrow,
                                                   ", or give it a longer deadline")));
    return false;
  }
  return true;
}

void QueryContext::Fail(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  if (status_.ok()) status_ = std::move(status);
  failed_.store(true, std::memory_order_relaxed);
}

absl::Status QueryContext::status() const {
  if (!failed_.load(std::memory_order_relaxed)) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  return status_;
}

}  // namespace fleetblame::aggregator
