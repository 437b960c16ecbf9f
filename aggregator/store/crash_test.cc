// SPDX-License-Identifier: Apache-2.0
//
// A process that is killed at any moment: what it acknowledged is there, once, at every resolution.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

#include "aggregator/store/rocks_store.h"
#include "aggregator/store/testing/store_model.h"
#include "aggregator/store/testing/temp_store.h"

namespace fleetblame::aggregator {
namespace {

constexpr uint64_t kSeed = 4242;

// Appends until it is killed, tells each acknowledged seq through the pipe, keeps rollups coming.
[[noreturn]] void Child(const RocksStoreOptions& options, int ack_pipe) {
  auto store = OpenRocksStore(options);
  if (!store.ok()) _exit(3);
  ModelAgent agent(1, kSeed);
  auto number = (*store)->UpsertHost(agent.Record());
  if (!number.ok()) _exit(4);
  agent.number = *number;
  uint64_t durable = (*store)->DurableSeq(*number, agent.spool_epoch()).value_or(0);
  while (agent.seq < durable) NthBatch(&agent);
  // The dictionary is durable, but an agent that was away sends it again.
  agent.Redefine();
  std::atomic<uint64_t> now{kTestStartUnixNs};
  std::thread upkeep([&] {
    while (true) {
      if (!(*store)->Upkeep(now, 50'000'000).ok()) _exit(5);
      usleep(500);
    }
  });
  while (true) {
    std::vector<ModelAgent::Outgoing> outs;
    for (int i = 0; i < 3; ++i) outs.push_back(NthBatch(&agent));
    std::vector<IncomingBatch> in;
    for (const auto& out : outs) in.push_back({agent.number, &out.batch, &out.rows});
    auto results = (*store)->Append(in);
    if (!results.ok() || results->back().outcome != AppendResult::Outcome::kDurable) _exit(6);
    uint64_t seq = agent.seq;
    if (write(ack_pipe, &seq, sizeof(seq)) != sizeof(seq)) _exit(7);
    now = kTestStartUnixNs + seq * 20 * kTestSecondNs;
  }
}

TEST(CrashTest, KilledAtAnyMomentNothingAcknowledgedIsLostOrDouble) {
  RocksStoreOptions options = SmallStore("crash");
  std::mt19937_64 random(1);
  uint64_t acked = 0;
  constexpr int kKills = 25;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(fds[0]);
      Child(options, fds[1]);
    }
    close(fds[1]);
    // Some die while they open the store, most while they write: however slow the machine is, those
    // have got something acknowledged before.
    const bool while_opening = kill_number % 5 == 0;
    pollfd ack{fds[0], POLLIN, 0};
    if (!while_opening) {
      ASSERT_EQ(poll(&ack, 1, 60'000), 1) << "nothing was acknowledged for a minute";
    }
    usleep(static_cast<useconds_t>(random() % (while_opening ? 50'000 : 500'000)));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "exit code " << WEXITSTATUS(status);
    uint64_t seq = 0;
    while (read(fds[0], &seq, sizeof(seq)) == sizeof(seq)) acked = seq;
    close(fds[0]);

    auto store = OpenRocksStore(options);
    ASSERT_TRUE(store.ok()) << store.status();
    std::vector<HostRecord> hosts = (*store)->NewReadView()->Hosts();
    if (hosts.empty()) {
      ASSERT_EQ(acked, 0u);
      continue;
    }
    ModelAgent agent(1, kSeed);
    uint64_t durable = (*store)->DurableSeq(hosts[0].number, agent.spool_epoch()).value();
    ASSERT_GE(durable, acked);
    StoreModel model;
    while (agent.seq < durable) {
      ModelAgent::Outgoing out = NthBatch(&agent);
      model.Add(agent, out);
    }
    for (bool rolled_up : {false, true}) {
      if (rolled_up) {
        ASSERT_TRUE(
            (*store)
                ->Upkeep(kTestStartUnixNs + 30ull * 86400 * kTestSecondNs, 3600 * kTestSecondNs)
                .ok());
      }
      std::vector<HostNumber> all = {hosts[0].number};
      auto view = (*store)->NewReadView();
      RowSums want = model.Rows(0, UINT64_MAX, KeyDetail::kAll);
      RowSums got = ReadHosts(*view, all, kAllTime, KeyDetail::kAll);
      ASSERT_TRUE(got == want) << rolled_up << Difference(got, want);
      want = model.Rows(0, UINT64_MAX, KeyDetail::kFleet);
      got = ReadFleet(*view, kAllTime);
      ASSERT_TRUE(got == want) << rolled_up << Difference(got, want);
      if (kill_number % 5 != 4) break;  // mostly leave unfinished work to the next life
    }
  }
  EXPECT_GT(acked, 50u);
  std::filesystem::remove_all(options.path);
}

}  // namespace
}  // namespace fleetblame::aggregator
