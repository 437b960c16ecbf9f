// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/registrar.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"

namespace fleetblame::aggregator {
namespace {

// Large enough to make an fsync cheap, small enough not to keep batches waiting for long.
constexpr size_t kGroup = 256;

}  // namespace

void Registrar::Submit(std::shared_ptr<RegistrationClient> client, v1::Hello hello) {
  bool first;
  {
    absl::MutexLock lock(&mu_);
    first = waiting_.empty();
    waiting_.push_back({std::move(client), std::move(hello)});
  }
  // Those that follow are taken by the task of the first.
  if (first) committer_->Run([this] { RegisterGroup(); });
}

void Registrar::RegisterGroup() {
  std::vector<Waiting> group;
  bool more;
  {
    absl::MutexLock lock(&mu_);
    auto end = waiting_.begin() + static_cast<ptrdiff_t>(std::min(kGroup, waiting_.size()));
    group.assign(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(end));
    waiting_.erase(waiting_.begin(), end);
    more = !waiting_.empty();
  }
  if (more) committer_->Run([this] { RegisterGroup(); });

  absl::Time now = absl::Now();
  std::vector<std::shared_ptr<RegistrationClient>> clients;
  std::vector<HostRecord> hosts;
  for (Waiting& waiting : group) {
    std::optional<HostRecord> host = waiting.client->BeginRegistration(waiting.hello, now);
    if (!host) continue;
    clients.push_back(std::move(waiting.client));
    hosts.push_back(*std::move(host));
  }
  std::vector<absl::StatusOr<HostDirectory::Registered>> registered =
      hosts_->Register(std::move(hosts), now);
  for (size_t i = 0; i < clients.size(); ++i) {
    clients[i]->EndRegistration(std::move(registered[i]));
  }
}

}  // namespace fleetblame::aggregator
