// SPDX-License-Identifier: Apache-2.0
#include "cli/host_devices.h"

#include <gtest/gtest.h>

namespace fleetblame::cli {
namespace {

void Add(v1::CoverageResponse* coverage, const std::string& host, const std::string& device,
         v1::Operation direction, uint64_t bytes, const std::string& alias = "",
         const std::string& id = "") {
  auto* row = coverage->add_rows();
  row->set_host_id("id-" + host);
  row->set_hostname(host);
  row->set_device(device);
  row->set_direction(direction);
  row->set_kernel_bytes(bytes);
  row->mutable_device_info()->set_alias(alias);
  row->mutable_device_info()->set_persistent_id(id);
}

TEST(HostDevicesTest, DirectionsOfADeviceAreOneEntryAndTheBusiestComesFirst) {
  v1::CoverageResponse coverage;
  Add(&coverage, "web-2", "sda", v1::OPERATION_WRITE, 7);
  Add(&coverage, "web-1", "sda", v1::OPERATION_READ, 10, "", "eui.1");
  Add(&coverage, "web-1", "dm-0", v1::OPERATION_WRITE, 100, "vg-root", "LVM-a");
  Add(&coverage, "web-1", "dm-0", v1::OPERATION_READ, 20, "vg-root", "LVM-a");
  Add(&coverage, "web-1", "dm-0", v1::OPERATION_DISCARD, 5, "vg-root", "LVM-a");
  const std::vector<HostDevice> devices = HostDevices(coverage);
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_EQ(devices[0].host, "web-1");
  EXPECT_EQ(devices[0].device, "dm-0");
  EXPECT_EQ(devices[0].info.alias(), "vg-root");
  EXPECT_EQ(devices[0].info.persistent_id(), "LVM-a");
  EXPECT_EQ(devices[0].written_bytes, 100u);
  EXPECT_EQ(devices[0].read_bytes, 20u);
  EXPECT_EQ(devices[1].device, "sda");
  EXPECT_EQ(devices[1].info.persistent_id(), "eui.1");
  EXPECT_EQ(devices[2].host, "web-2");
  EXPECT_EQ(devices[2].host_id, "id-web-2");
}

// Zero and unknown never look the same.
TEST(HostDevicesTest, ADirectionThatWasCutFromTheAnswerIsUnknown) {
  v1::CoverageResponse coverage;
  Add(&coverage, "web", "sda", v1::OPERATION_WRITE, 7);
  std::vector<HostDevice> devices = HostDevices(coverage);
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].read_bytes, 0u);
  coverage.set_omitted(1);
  devices = HostDevices(coverage);
  EXPECT_EQ(devices[0].written_bytes, 7u);
  EXPECT_FALSE(devices[0].read_bytes.has_value());
}

TEST(HostDevicesTest, HostsOfOneNameStayApart) {
  v1::CoverageResponse coverage;
  Add(&coverage, "web", "sda", v1::OPERATION_WRITE, 1);
  Add(&coverage, "web", "sda", v1::OPERATION_WRITE, 2);
  coverage.mutable_rows(1)->set_host_id("another");
  EXPECT_EQ(HostDevices(coverage).size(), 2u);
}

}  // namespace
}  // namespace fleetblame::cli
