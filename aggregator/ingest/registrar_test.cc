// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/registrar.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "aggregator/ingest/testing/sample_batch.h"
#include "aggregator/store/testing/fake_store.h"
#include "gtest/gtest.h"

namespace fleetblame::aggregator {
namespace {

// What happened, seen by all clients of a test.
struct Log {
  absl::Mutex mu;
  std::set<absl::Time> groups ABSL_GUARDED_BY(mu);  // members of a group begin at the same time
  std::set<HostNumber> numbers ABSL_GUARDED_BY(mu);
  size_t ended ABSL_GUARDED_BY(mu) = 0;
  size_t failed ABSL_GUARDED_BY(mu) = 0;

  void AwaitEnded(size_t count) {
    absl::MutexLock lock(&mu);
    auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return ended == count; };
    EXPECT_TRUE(mu.AwaitWithTimeout(absl::Condition(&done), absl::Seconds(30))) << ended;
  }
};

class Client : public RegistrationClient {
 public:
  Client(Log* log, bool gone) : log_(log), gone_(gone) {}
  std::optional<HostRecord> BeginRegistration(const v1::Hello& hello, absl::Time now) override {
    if (gone_) return std::nullopt;
    absl::MutexLock lock(&log_->mu);
    log_->groups.insert(now);
    host_id_ = hello.host_id();
    HostRecord host;
    host.host_id = host_id_;
    return host;
  }
  void EndRegistration(absl::StatusOr<HostDirectory::Registered> registered) override {
    absl::MutexLock lock(&log_->mu);
    ++log_->ended;
    if (!registered.ok()) {
      ++log_->failed;
      return;
    }
    EXPECT_EQ(registered->host.host_id, host_id_);
    log_->numbers.insert(registered->host.number);
  }

 private:
  Log* const log_;
  const bool gone_;
  std::string host_id_;
};

class RegistrarTest : public testing::Test {
 protected:
  void Submit(const std::string& host_id, bool gone = false) {
    registrar_.Submit(std::make_shared<Client>(&log_, gone), SampleHello(host_id));
  }
  // Keeps the committer busy, as a long write would, until it is notified.
  void Block(absl::Notification* end) {
    absl::Notification begun;
    committer_.Run([&begun, end] {
      begun.Notify();
      end->WaitForNotification();
    });
    begun.WaitForNotification();
  }

  Log log_;
  FakeStore store_;
  IngestMetrics metrics_{std::make_shared<prometheus::Registry>()};
  HostDirectory hosts_{&store_, IngestLimits()};
  Registrar registrar_{&committer_, &hosts_};
  Committer committer_{&store_, &metrics_, Committer::Options(), nullptr};
};

TEST_F(RegistrarTest, ThoseWhoComeWhileTheCommitterIsBusyShareAGroup) {
  constexpr size_t kAgents = 9500;
  absl::Notification end;
  Block(&end);
  for (size_t i = 0; i < kAgents; ++i) Submit(absl::StrCat("host-", i));
  end.Notify();
  log_.AwaitEnded(kAgents);
  absl::MutexLock lock(&log_.mu);
  EXPECT_EQ(log_.numbers.size(), kAgents);
  EXPECT_EQ(log_.failed, 0u);
  EXPECT_LE(log_.groups.size(), 40u);
  EXPECT_EQ(store_.host_writes(), log_.groups.size());
}

TEST_F(RegistrarTest, OneThatIsGoneOrAWriteThatFailsHoldsUpNobody) {
  absl::Notification end;
  Block(&end);
  Submit("gone", true);
  Submit("a");
  end.Notify();
  log_.AwaitEnded(1);
  store_.FailWrites(absl::UnavailableError("disk full"));
  Submit("b");
  log_.AwaitEnded(2);
  store_.FailWrites(absl::OkStatus());
  Submit("b");
  log_.AwaitEnded(3);
  absl::MutexLock lock(&log_.mu);
  EXPECT_EQ(log_.failed, 1u);
  EXPECT_EQ(log_.numbers.size(), 2u);
}

}  // namespace
}  // namespace fleetblame::aggregator
