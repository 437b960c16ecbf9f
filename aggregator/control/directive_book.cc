// SPDX-License-Identifier: Apache-2.0
#include "aggregator/control/directive_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/device_pattern.h"
#include "common/log.h"

namespace fleetblame::aggregator {
namespace {

constexpr uint64_t kRestartMargin = 1'000'000;  // one second
constexpr size_t kMaxSets = 1000;
constexpr size_t kMaxNameBytes = 64;
constexpr int kMaxPatterns = 256;
constexpr uint64_t kMinWindowNs = 1'000'000'000;
constexpr uint64_t kMaxWindowNs = 3'600'000'000'000;

absl::Status CheckName(const std::string& name) {
  bool good = !name.empty() && name.size() <= kMaxNameBytes &&
              std::all_of(name.begin(), name.end(), [](unsigned char c) {
                return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
              });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the name of a set of directives must be 1 to 64 characters of [a-z0-9-]");
}

}  // namespace

absl::Status CheckDirectives(const v1::Directives& directives) {
  if (directives.has_window_ns() &&
      (directives.window_ns() < kMinWindowNs || directives.window_ns() > kMaxWindowNs)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a window must be between 1 s and 1 h, not ",
                     absl::FormatDuration(absl::Nanoseconds(directives.window_ns()))));
  }
  if (directives.devices().patterns_size() > kMaxPatterns) {
    return absl::InvalidArgumentError(absl::StrCat(directives.devices().patterns_size(),
                                                   " device patterns; at most ", kMaxPatterns));
  }
  for (const std::string& pattern : directives.devices().patterns()) {
    if (absl::Status status = CheckDevicePattern(pattern); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DirectiveBook>> DirectiveBook::Open(Store* store, TraceHub* hub) {
  absl::StatusOr<std::vector<v1::ListDirectivesResponse::Set>> stored = store->ListDirectives();
  if (!stored.ok()) return stored.status();
  std::unique_ptr<DirectiveBook> book(new DirectiveBook(store, hub));
  absl::MutexLock lock(&book->mu_);
  for (v1::ListDirectivesResponse::Set& set : *stored) {
    book->revision_ = std::max(book->revision_, set.directives().revision());
    absl::StatusOr<Selector> selector = Selector::Parse(set.selector());
    if (!selector.ok()) {
      // Written by another version; it stays listed, and deleting or setting it again settles it.
      LogWarning("a stored selector is not understood; its directives apply to no host",
                 {{"name", set.name()}, {"error", selector.status()}});
      selector = Selector::Parse("{host=\"\",host!=\"\"}");
      if (!selector.ok()) return selector.status();
    }
    std::string name = set.name();
    book->sets_.insert_or_assign(std::move(name), Entry{std::move(set), *std::move(selector)});
  }
  // The last process may have given out numbers a little ahead of the clock that it did not store.
  book->NextRevision();
  book->revision_ += kRestartMargin;
  return book;
}

uint64_t DirectiveBook::NextRevision() {
  uint64_t clock = static_cast<uint64_t>(absl::GetCurrentTimeNanos() / 1000);
  revision_ = std::max(revision_ + 1, clock);
  return revision_;
}

absl::StatusOr<uint64_t> DirectiveBook::Set(const v1::SetDirectivesRequest& request) {
  absl::Status status = CheckName(request.name());
  if (status.ok()) status = CheckDirectives(request.directives());
  if (!status.ok()) return status;
  absl::StatusOr<Selector> selector = Selector::Parse(request.selector());
  if (!selector.ok()) return selector.status();

  absl::MutexLock change(&change_mu_);
  Entry entry;
  entry.set.set_name(request.name());
  entry.set.set_selector(request.selector());
  *entry.set.mutable_directives() = request.directives();
  entry.set.mutable_directives()->clear_trace();
  entry.selector = *std::move(selector);
  uint64_t revision;
  {
    absl::MutexLock lock(&mu_);
    if (sets_.size() >= kMaxSets && sets_.count(request.name()) == 0) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "there are already ", sets_.size(), " sets of directives; delete those not needed"));
    }
    revision = NextRevision();
  }
  entry.set.mutable_directives()->set_revision(revision);
  status = store_->PutDirectives(entry.set);
  if (!status.ok()) return status;
  absl::MutexLock lock(&mu_);
  revision_ = std::max(revision_, revision);
  sets_.insert_or_assign(request.name(), std::move(entry));
  // What was computed while the store wrote was still the old state under the new number.
  NextRevision();
  return revision;
}

absl::StatusOr<uint64_t> DirectiveBook::Delete(const std::string& name) {
  absl::MutexLock change(&change_mu_);
  {
    absl::MutexLock lock(&mu_);
    if (sets_.count(name) == 0) {
      return absl::NotFoundError(absl::StrCat("there are no directives named ", name));
    }
  }
  absl::Status status = store_->DeleteDirectives(name);
  if (!status.ok()) return status;
  absl::MutexLock lock(&mu_);
  sets_.erase(name);
  return NextRevision();
}

std::vector<v1::ListDirectivesResponse::Set> DirectiveBook::List() const {
  absl::MutexLock lock(&mu_);
  std::vector<v1::ListDirectivesResponse::Set> sets;
  sets.reserve(sets_.size());
  for (const auto& [name, entry] : sets_) sets.push_back(entry.set);
  return sets;
}

void DirectiveBook::TraceChanged() {
  absl::MutexLock lock(&mu_);
  NextRevision();
}

v1::Directives DirectiveBook::For(const HostRecord& host) const {
  SelectorTarget target{host.host_id, host.hostname, host.kernel_release, &host.labels};
  v1::Directives directives;
  {
    absl::MutexLock lock(&mu_);
    const Entry* newest = nullptr;
    for (const auto& [name, entry] : sets_) {
      bool newer = newest == nullptr ||
                   entry.set.directives().revision() > newest->set.directives().revision();
      if (newer && entry.selector.Matches(target)) newest = &entry;
    }
    if (newest != nullptr) directives = newest->set.directives();
    directives.set_revision(revision_);
  }
  // Read after the revision: what is newer than its number is sent once more, never missed.
  std::optional<v1::TraceDirective> trace = hub_->DirectiveFor(host.host_id);
  if (trace) *directives.mutable_trace() = *std::move(trace);
  return directives;
}

}  // namespace fleetblame::aggregator
