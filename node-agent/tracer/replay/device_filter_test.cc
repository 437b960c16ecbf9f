// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/replay/device_filter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace fleetblame::agent {
namespace {

constexpr DeviceNumber kSda{8, 0}, kSdb{8, 16}, kNvme{259, 0}, kRam{1, 3}, kUnnamed{7, 9};

DeviceFilter MakeFilter() {
  DeviceFilter filter;
  filter.SetKnown(
      {{kSda, "sda"}, {kSdb, "sdb"}, {kNvme, "nvme0n1"}, {kRam, "ram3"}, {kUnnamed, ""}});
  return filter;
}

std::vector<bool> Select(DeviceFilter* filter, const std::vector<std::string>& patterns) {
  absl::Status status = filter->Select({patterns});
  EXPECT_TRUE(status.ok()) << status;
  return {filter->Watches(kSda), filter->Watches(kSdb), filter->Watches(kNvme),
          filter->Watches(kRam), filter->Watches(kUnnamed)};
}

TEST(DeviceFilter, WatchesEverythingUntilToldOtherwise) {
  DeviceFilter filter = MakeFilter();
  EXPECT_TRUE(filter.Watches(kSda));
  EXPECT_TRUE(filter.Watches(kRam));
}

TEST(DeviceFilter, LastMatchWins) {
  DeviceFilter filter = MakeFilter();
  EXPECT_EQ(Select(&filter, {"sda"}), (std::vector<bool>{true, false, false, false, false}));
  EXPECT_EQ(Select(&filter, {"sd*", "!sdb"}),
            (std::vector<bool>{true, false, false, false, false}));
  EXPECT_EQ(Select(&filter, {"*", "!sd?", "8:16"}),
            (std::vector<bool>{false, true, true, true, false}));
  EXPECT_EQ(Select(&filter, {"7:9"}), (std::vector<bool>{false, false, false, false, true}));
  EXPECT_EQ(Select(&filter, {}), (std::vector<bool>{true, true, true, false, true}));
  EXPECT_EQ(Select(&filter, {"vd*"}), (std::vector<bool>{false, false, false, false, false}));
}

TEST(DeviceFilter, AnUnknownNameChangesNothing) {
  DeviceFilter filter = MakeFilter();
  Select(&filter, {"sda"});
  absl::Status status = filter.Select({{"sdb", "sdq"}});
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_TRUE(absl::StrContains(status.message(), "sdq"));
  EXPECT_TRUE(filter.Watches(kSda));
  EXPECT_FALSE(filter.Watches(kSdb));
}

}  // namespace
}  // namespace fleetblame::agent
