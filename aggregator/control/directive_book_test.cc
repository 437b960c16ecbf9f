// SPDX-License-Identifier: Apache-2.0
#include "aggregator/control/directive_book.h"

#include "aggregator/store/testing/fake_store.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

HostRecord Host(const std::string& id, const std::string& role) {
  HostRecord host;
  host.host_id = id;
  host.hostname = id + ".example";
  host.labels["role"] = role;
  return host;
}

v1::SetDirectivesRequest Request(const std::string& name, const std::string& selector,
                                 uint64_t window_s) {
  v1::SetDirectivesRequest request;
  request.set_name(name);
  request.set_selector(selector);
  request.mutable_directives()->set_window_ns(window_s * 1'000'000'000);
  return request;
}

class DirectiveBookTest : public testing::Test {
 protected:
  std::unique_ptr<DirectiveBook> Open() {
    auto book = DirectiveBook::Open(&store_, hub_.get());
    EXPECT_TRUE(book.ok()) << book.status();
    return *std::move(book);
  }
  FakeStore store_;
  std::unique_ptr<TraceHub> hub_ = TraceHub::Create({});
};

TEST_F(DirectiveBookTest, NewestMatchingSetApplies) {
  auto book = Open();
  EXPECT_FALSE(book->For(Host("a", "db")).has_window_ns());
  ASSERT_TRUE(book->Set(Request("z-all", "", 10)).ok());
  ASSERT_TRUE(book->Set(Request("a-db", "{role=\"db\"}", 20)).ok());
  EXPECT_EQ(book->For(Host("a", "db")).window_ns(), 20'000'000'000u);
  EXPECT_EQ(book->For(Host("a", "web")).window_ns(), 10'000'000'000u);
  // Setting it again makes it the newest.
  ASSERT_TRUE(book->Set(Request("z-all", "", 30)).ok());
  EXPECT_EQ(book->For(Host("a", "db")).window_ns(), 30'000'000'000u);
  ASSERT_TRUE(book->Delete("z-all").ok());
  EXPECT_EQ(book->For(Host("a", "db")).window_ns(), 20'000'000'000u);
  EXPECT_FALSE(book->For(Host("a", "web")).has_window_ns());
  EXPECT_TRUE(absl::IsNotFound(book->Delete("z-all").status()));
  EXPECT_EQ(book->List().size(), 1u);
}

TEST_F(DirectiveBookTest, RevisionsIncreaseWithEachChangeAndAcrossRestarts) {
  uint64_t last = 0;
  {
    auto book = Open();
    auto newer = [&] {
      uint64_t revision = book->For(Host("a", "db")).revision();
      EXPECT_GT(revision, last);
      last = revision;
    };
    newer();
    ASSERT_TRUE(book->Set(Request("x", "", 10)).ok());
    newer();
    book->TraceChanged();
    newer();
    ASSERT_TRUE(book->Set(Request("y", "", 10)).ok());
    ASSERT_TRUE(book->Delete("y").ok());
    newer();
  }
  auto again = Open();
  EXPECT_EQ(again->For(Host("a", "db")).window_ns(), 10'000'000'000u);
  EXPECT_GT(again->For(Host("a", "db")).revision(), last);
}

TEST_F(DirectiveBookTest, TraceComesFromTheHub) {
  auto book = Open();
  auto request = Request("x", "", 10);
  request.mutable_directives()->mutable_trace()->set_trace_id(5);
  ASSERT_TRUE(book->Set(request).ok());
  EXPECT_FALSE(book->For(Host("a", "db")).has_trace());
  v1::TraceDirective want;
  want.set_max_duration_ns(60'000'000'000);
  auto subscription = hub_->Subscribe({"a"}, want, nullptr);
  ASSERT_TRUE(subscription.ok());
  EXPECT_NE(book->For(Host("a", "db")).trace().trace_id(), 0u);
  EXPECT_FALSE(book->For(Host("b", "db")).has_trace());
}

TEST_F(DirectiveBookTest, RefusesWhatCannotBeFollowed) {
  auto book = Open();
  auto refused = [&](const v1::SetDirectivesRequest& request) {
    return absl::IsInvalidArgument(book->Set(request).status());
  };
  EXPECT_TRUE(refused(Request("", "", 10)));
  EXPECT_TRUE(refused(Request("Upper", "", 10)));
  EXPECT_TRUE(refused(Request(std::string(65, 'a'), "", 10)));
  EXPECT_TRUE(refused(Request("x", "{role=", 10)));
  EXPECT_TRUE(refused(Request("x", "", 0)));
  EXPECT_TRUE(refused(Request("x", "", 3601)));
  auto request = Request("x", "", 10);
  request.mutable_directives()->mutable_devices()->add_patterns("!");
  EXPECT_TRUE(refused(request));
  EXPECT_TRUE(book->List().empty());
}

TEST_F(DirectiveBookTest, WhatCannotBeStoredDoesNotHold) {
  auto book = Open();
  store_.FailWrites(absl::UnavailableError("disk full"));
  EXPECT_FALSE(book->Set(Request("x", "", 10)).ok());
  EXPECT_FALSE(book->For(Host("a", "db")).has_window_ns());
  EXPECT_TRUE(book->List().empty());
}

TEST_F(DirectiveBookTest, AStoredSelectorThatIsNotUnderstoodAppliesToNobody) {
  v1::ListDirectivesResponse::Set set;
  set.set_name("from-the-future");
  set.set_selector("{role??\"db\"}");
  set.mutable_directives()->set_window_ns(1'000'000'000);
  ASSERT_TRUE(store_.PutDirectives(set).ok());
  auto book = Open();
  EXPECT_FALSE(book->For(Host("a", "db")).has_window_ns());
  EXPECT_EQ(book->List().size(), 1u);
  EXPECT_TRUE(book->Delete("from-the-future").ok());
}

}  // namespace
}  // namespace fleetblame::aggregator
