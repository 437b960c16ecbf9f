// SPDX-License-Identifier: Apache-2.0
//
// The checker must be able to fail: every promise is broken once.
#include "tests/conformance/contract_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "node-agent/tracer/replay/synthetic_script.h"

namespace fleetblame::testing {
namespace {

using agent::Books;
using agent::Confidence;
using agent::Operation;
using agent::Snapshot;
using agent::TraceRecord;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ContractChecker, FindsNothingWhereNothingIs) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    agent::TracerScript script = agent::MakeSyntheticScript({.seed = seed});
    ContractChecker checker(script.info);
    checker.CheckInfo();
    for (const TraceRecord& r : script.trace) checker.Check(r);
    for (const Snapshot& s : script.snapshots) checker.Check(s);
    checker.CheckEnd();
    EXPECT_THAT(checker.violations(), IsEmpty());
    EXPECT_GT(checker.rows(), 50u);
    EXPECT_EQ(checker.trace_records(), 100u);
  }
}

struct Breach {
  const char* sentence;
  std::function<void(Snapshot*)> commit;
};

class SnapshotBreach : public ::testing::TestWithParam<Breach> {};

TEST_P(SnapshotBreach, IsSeen) {
  agent::TracerScript script = agent::MakeSyntheticScript();
  Snapshot& s = script.snapshots[0];
  GetParam().commit(&s);
  ContractChecker checker(script.info);
  checker.Check(s);
  checker.Check(script.snapshots[1]);
  EXPECT_THAT(checker.violations(), Contains(HasSubstr(GetParam().sentence)));
}

INSTANTIATE_TEST_SUITE_P(
    All, SnapshotBreach,
    ::testing::Values(
        Breach{"comes twice", [](Snapshot* s) { s->rows.push_back(s->rows[0]); }},
        Breach{"undefined stack", [](Snapshot* s) { s->stacks.clear(); }},
        Breach{"undefined actor", [](Snapshot* s) { s->actors.clear(); }},
        Breach{"undefined file", [](Snapshot* s) { s->rows[0].key.file = 999; }},
        Breach{"is defined twice", [](Snapshot* s) { s->stacks.push_back(s->stacks[0]); }},
        Breach{"has no address", [](Snapshot* s) { s->stacks[0].addresses.clear(); }},
        Breach{"holds address 0", [](Snapshot* s) { s->stacks[0].addresses[0] = 0; }},
        Breach{"is special", [](Snapshot* s) { s->stacks[0].id = agent::kLostStack; }},
        Breach{"wait histogram counts", [](Snapshot* s) { s->rows[0].values.wait.Add(5, 1); }},
        Breach{"io histogram counts", [](Snapshot* s) { s->rows[0].values.io.Add(5, 1); }},
        Breach{"outside of what its histogram allows",
               [](Snapshot* s) { s->rows[0].values.io_ns *= 10; }},
        Breach{"absurd number",
               [](Snapshot* s) { s->rows[0].values.wait_ns = static_cast<uint64_t>(-3); }},
        Breach{"says nothing", [](Snapshot* s) { s->rows[0].values = {}; }},
        Breach{"more errors than IOs",
               [](Snapshot* s) { s->rows[0].values.errors = s->rows[0].values.ios + 1; }},
        Breach{"has no operation",
               [](Snapshot* s) { s->rows[0].key.operation = Operation::kUnspecified; }},
        Breach{"has no confidence",
               [](Snapshot* s) { s->rows[0].key.confidence = Confidence::kUnspecified; }},
        Breach{"unknown reason", [](Snapshot* s) { s->rows[0].key.reason = 200; }},
        Breach{"is lost but names a dirtier",
               [](Snapshot* s) {
                 s->rows[0].key.confidence = Confidence::kLost;
                 s->rows[0].key.dirtier_actor = s->actors[0].id;
               }},
        Breach{"claims to know the dirtier",
               [](Snapshot* s) {
                 s->rows[0].key.confidence = Confidence::kExact;
                 s->rows[0].key.dirtier_actor = agent::kNoActor;
               }},
        Breach{"the rows", [](Snapshot* s) { s->books[0].recorded_bytes += 512; }},
        Breach{"the rows", [](Snapshot* s) { ++s->books[0].recorded_ios; }},
        Breach{"have no books", [](Snapshot* s) { s->books.clear(); }},
        Breach{"come twice", [](Snapshot* s) { s->books.push_back(s->books[0]); }},
        Breach{"no direction", [](Snapshot* s) { s->books[0].direction = Operation::kFlush; }},
        Breach{"the one before it ended", [](Snapshot* s) { s->end_boot_ns -= 1; }},
        Breach{"ends before it begins", [](Snapshot* s) { s->end_boot_ns = 0; }},
        Breach{"has no name", [](Snapshot* s) { s->losses[""] = 1; }}));

TEST(ContractChecker, SeesBreachesOfTraceRecords) {
  agent::TracerScript script = agent::MakeSyntheticScript();
  const std::pair<const char*, std::function<void(TraceRecord*)>> breaches[] = {
      {"has no rwbs", [](TraceRecord* r) { r->rwbs.clear(); }},
      {"charges more to others", [](TraceRecord* r) { r->other_bytes = r->bytes + 1; }},
      {"negative error", [](TraceRecord* r) { r->error = -5; }},
      {"has no operation", [](TraceRecord* r) { r->operation = Operation::kUnspecified; }},
      {"undefined stack", [](TraceRecord* r) { r->issuer_stack = 9999; }},
      {"undefined actor", [](TraceRecord* r) { r->dirtier_actor = 9999; }},
  };
  for (const auto& [sentence, commit] : breaches) {
    TraceRecord record = script.trace[0];
    commit(&record);
    ContractChecker checker(script.info);
    checker.Check(record);
    for (const Snapshot& s : script.snapshots) checker.Check(s);
    EXPECT_THAT(checker.violations(), Contains(HasSubstr(sentence)));
  }
}

TEST(ContractChecker, SeesBreachesOfTheInfo) {
  ContractChecker checker(agent::TracerInfo{});
  checker.CheckInfo();
  EXPECT_THAT(checker.violations(), Contains(HasSubstr("kernel release")));
  EXPECT_THAT(checker.violations(), Contains(HasSubstr("reason 0")));
}

}  // namespace
}  // namespace fleetblame::testing
