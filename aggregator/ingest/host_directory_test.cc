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

absl::StatusOr<HostDirectory::Registered> Register(HostDirectory& directory, HostRecord host,
                                                   absl::Time now) {
  return std::move(directory.Register({std::move(host)}, now).front());
}

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

TEST(HostDirectory, AnUnchangedHostIsNotWrittenAgain) {
  FakeStore store;
  HostDirectory directory(&store, IngestLimits());
  auto first = Register(directory, Host("a", kNow), kNow);
  ASSERT_TRUE(first.ok());
  EXPECT_NE(first->host.number, 0u);
  EXPECT_EQ(first->previously_seen_unix_ns, 0u);

  store.FailWrites(absl::UnavailableError("disk full"));
  absl::Time later = kNow + absl::Minutes(1);
  auto again = Register(directory, Host("a", later), later);
  ASSERT_TRUE(again.ok()) << "no write was needed";
  EXPECT_EQ(again->host.number, first->host.number);
  EXPECT_EQ(again->host.first_seen_unix_ns, first->host.first_seen_unix_ns);
  EXPECT_EQ(again->previously_seen_unix_ns, static_cast<uint64_t>(absl::ToUnixNanos(kNow)));
  EXPECT_EQ(again->definitions, first->definitions);

  HostRecord changed = Host("a", later);
  changed.labels["role"] = "web";
  EXPECT_FALSE(Register(directory, changed, later).ok());
  EXPECT_FALSE(Register(directory, Host("b", later), later).ok());
  absl::Time next_day = kNow + absl::Hours(24);
  EXPECT_FALSE(Register(directory, Host("a", next_day), next_day).ok());
  store.FailWrites(absl::OkStatus());
  EXPECT_TRUE(Register(directory, Host("b", later), later).ok());
}

TEST(HostDirectory, KnowsWhatTheStoreKnew) {
  FakeStore store;
  HostNumber number = *store.UpsertHost(Host("a", absl::Now()));
  HostDirectory directory(&store, IngestLimits());
  store.FailWrites(absl::UnavailableError("disk full"));
  auto registered = Register(directory, Host("a", absl::Now()), absl::Now());
  ASSERT_TRUE(registered.ok());
  EXPECT_EQ(registered->host.number, number);
}

TEST(HostDirectory, TooManyHosts) {
  FakeStore store;
  IngestLimits limits;
  limits.max_hosts = 1;
  HostDirectory directory(&store, limits);
  EXPECT_TRUE(Register(directory, Host("a", kNow), kNow).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Register(directory, Host("b", kNow), kNow).status()));
  EXPECT_TRUE(Register(directory, Host("a", kNow), kNow).ok());
}

TEST(HostDirectory, AGroupGetsOneResultAHostInItsOrder) {
  FakeStore store;
  IngestLimits limits;
  limits.max_hosts = 3;
  HostDirectory directory(&store, limits);
  HostNumber known = Register(directory, Host("known", kNow), kNow)->host.number;
  auto results = directory.Register({Host("a", kNow), Host("known", kNow), Host("b", kNow),
                                     Host("too-many", kNow), Host("a", kNow)},
                                    kNow);
  ASSERT_EQ(results.size(), 5u);
  ASSERT_TRUE(results[0].ok() && results[1].ok() && results[2].ok() && results[4].ok());
  EXPECT_TRUE(absl::IsResourceExhausted(results[3].status())) << results[3].status();
  EXPECT_EQ(results[0]->host.host_id, "a");
  EXPECT_EQ(results[1]->host.number, known);
  EXPECT_EQ(results[2]->host.host_id, "b");
  EXPECT_NE(results[0]->host.number, results[2]->host.number);
  EXPECT_EQ(results[4]->host.number, results[0]->host.number);
  EXPECT_EQ(results[4]->definitions, results[0]->definitions);
  EXPECT_EQ(store.NewReadView()->Hosts().size(), 3u);
}

TEST(HostDirectory, AFailedWriteSparesThoseThatNeededNone) {
  FakeStore store;
  HostDirectory directory(&store, IngestLimits());
  ASSERT_TRUE(Register(directory, Host("known", kNow), kNow).ok());
  store.FailWrites(absl::UnavailableError("disk full"));
  auto results = directory.Register({Host("new", kNow), Host("known", kNow)}, kNow);
  EXPECT_FALSE(results[0].ok());
  EXPECT_TRUE(results[1].ok());
  // Nothing is remembered of what was not written.
  EXPECT_FALSE(Register(directory, Host("new", kNow), kNow).ok());
}

}  // namespace
}  // namespace fleetblame::aggregator
