// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/host_directory.h"

#include "aggregator/store/testing/fake_store.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

HostRecord Host(const std::string& id, absl::Time now) {
  HostRecord host;
  host.host_id = id;
  host.hostname = id;
  host.labels["role"] = "db";
  host.last_seen_unix_ns = absl::ToUnixNanos(now);
  return host;
}

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

TEST(HostDirectory, AnUnchangedHostIsNotWrittenAgain) {
  FakeStore store;
  HostDirectory directory(&store, IngestLimits());
  auto first = directory.Register(Host("a", kNow), kNow);
  ASSERT_TRUE(first.ok());
  EXPECT_NE(first->host.number, 0u);
  EXPECT_EQ(first->previously_seen_unix_ns, 0u);

  store.FailWrites(absl::UnavailableError("disk full"));
  absl::Time later = kNow + absl::Minutes(1);
  auto again = directory.Register(Host("a", later), later);
  ASSERT_TRUE(again.ok()) << "no write was needed";
  EXPECT_EQ(again->host.number, first->host.number);
  EXPECT_EQ(again->host.first_seen_unix_ns, first->host.first_seen_unix_ns);
  EXPECT_EQ(again->previously_seen_unix_ns, static_cast<uint64_t>(absl::ToUnixNanos(kNow)));
  EXPECT_EQ(again->definitions, first->definitions);

  HostRecord changed = Host("a", later);
  changed.labels["role"] = "web";
  EXPECT_FALSE(directory.Register(changed, later).ok());
  EXPECT_FALSE(directory.Register(Host("b", later), later).ok());
  absl::Time next_day = kNow + absl::Hours(24);
  EXPECT_FALSE(directory.Register(Host("a", next_day), next_day).ok());
  store.FailWrites(absl::OkStatus());
  EXPECT_TRUE(directory.Register(Host("b", later), later).ok());
}

TEST(HostDirectory, KnowsWhatTheStoreKnew) {
  FakeStore store;
  HostNumber number = *store.UpsertHost(Host("a", absl::Now()));
  HostDirectory directory(&store, IngestLimits());
  store.FailWrites(absl::UnavailableError("disk full"));
  auto registered = directory.Register(Host("a", absl::Now()), absl::Now());
  ASSERT_TRUE(registered.ok());
  EXPECT_EQ(registered->host.number, number);
}

TEST(HostDirectory, TooManyHosts) {
  FakeStore store;
  IngestLimits limits;
  limits.max_hosts = 1;
  HostDirectory directory(&store, limits);
  EXPECT_TRUE(directory.Register(Host("a", kNow), kNow).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(directory.Register(Host("b", kNow), kNow).status()));
  EXPECT_TRUE(directory.Register(Host("a", kNow), kNow).ok());
}

}  // namespace
}  // namespace fleetblame::aggregator
