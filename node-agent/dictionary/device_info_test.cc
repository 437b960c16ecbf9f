// SPDX-License-Identifier: Apache-2.0
#include "node-agent/dictionary/device_info.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace fleetblame::agent {
namespace {

namespace fs = std::filesystem;

// A small /sys.
class DeviceInfoTest : public testing::Test {
 protected:
  DeviceInfoTest() {
    const char* base = std::getenv("TEST_TMPDIR");
    sysfs_ = fs::path(base != nullptr ? base : "/tmp") / "device-info-sys";
    fs::remove_all(sysfs_);
    fs::create_directories(sysfs_ / "dev/block");
  }
  ~DeviceInfoTest() override { fs::remove_all(sysfs_); }

  void Put(const std::string& path, const std::string& text) {
    fs::create_directories((sysfs_ / path).parent_path());
    std::ofstream(sysfs_ / path) << text;
  }
  void Link(const std::string& number, const std::string& directory) {
    fs::create_directories(sysfs_ / directory);
    fs::create_symlink(sysfs_ / directory, sysfs_ / "dev/block" / number);
  }

  fs::path sysfs_;
};

TEST_F(DeviceInfoTest, ADiskWithItsModelAndSerial) {
  Put("devices/block/nvme0n1/wwid", "eui.0025388b71b3fe15\n");
  Put("devices/block/nvme0n1/device/model", "Fast Disk 960   \n");
  Put("devices/block/nvme0n1/queue/rotational", "0\n");
  Link("259:0", "devices/block/nvme0n1");
  const v1::Device device = ReadDevice(sysfs_.string(), 259, 0);
  EXPECT_EQ(device.name(), "nvme0n1");
  EXPECT_EQ(device.disk(), "");
  EXPECT_EQ(device.model(), "Fast Disk 960");
  EXPECT_EQ(device.persistent_id(), "eui.0025388b71b3fe15");
  ASSERT_TRUE(device.has_rotational());
  EXPECT_FALSE(device.rotational());
  EXPECT_EQ(device.major(), 259u);
}

TEST_F(DeviceInfoTest, APartitionKnowsItsDisk) {
  Put("devices/block/sda/device/model", "Spinner");
  Put("devices/block/sda/device/serial", "S123");
  Put("devices/block/sda/queue/rotational", "1");
  Put("devices/block/sda/sda2/partition", "2");
  Link("8:2", "devices/block/sda/sda2");
  const v1::Device device = ReadDevice(sysfs_.string(), 8, 2);
  EXPECT_EQ(device.name(), "sda2");
  EXPECT_EQ(device.disk(), "sda");
  EXPECT_EQ(device.model(), "Spinner");
  EXPECT_EQ(device.persistent_id(), "S123");
  EXPECT_TRUE(device.rotational());
}

TEST_F(DeviceInfoTest, APartitionByItsNumber) {
  Put("devices/block/nvme0n1/serial", "S7");
  Put("devices/block/nvme0n1/nvme0n1p2/partition", "2");
  Put("devices/block/nvme0n1/nvme0n1p2/dev", "259:5");
  Link("259:3", "devices/block/nvme0n1");
  v1::Device device = ReadPartition(sysfs_.string(), 259, 3, 2);
  EXPECT_EQ(device.name(), "nvme0n1p2");
  EXPECT_EQ(device.disk(), "nvme0n1");
  EXPECT_EQ(device.persistent_id(), "S7");
  EXPECT_EQ(device.minor(), 5u);
  device = ReadPartition(sysfs_.string(), 259, 3, 7);
  EXPECT_EQ(device.name(), "nvme0n1");
  EXPECT_EQ(device.disk(), "");
}

TEST_F(DeviceInfoTest, AStackedDeviceKnowsItsNameAndWhatItStandsOn) {
  Put("devices/block/dm-0/dm/name", "vg-root\n");
  Put("devices/block/dm-0/dm/uuid", "LVM-abc\n");
  Put("devices/block/dm-0/slaves/sdb/dev", "8:16");
  Put("devices/block/dm-0/slaves/sda/dev", "8:0");
  Link("253:0", "devices/block/dm-0");
  const v1::Device device = ReadDevice(sysfs_.string(), 253, 0);
  EXPECT_EQ(device.alias(), "vg-root");
  EXPECT_EQ(device.persistent_id(), "LVM-abc");
  ASSERT_EQ(device.lower_size(), 2);
  EXPECT_EQ(device.lower(0), "sda");
  EXPECT_TRUE(device.stacked());
}

TEST_F(DeviceInfoTest, AMultipathHeadIsADisk) {
  Put("devices/nvme-subsystem/nvme-subsys0/nvme0n1/wwid", "eui.0025388b71b3fe15\n");
  Put("devices/nvme-subsystem/nvme-subsys0/nvme0n1/device/model", "Fast Disk 960\n");
  Link("259:2", "devices/nvme-subsystem/nvme-subsys0/nvme0n1");
  const v1::Device device = ReadDevice(sysfs_.string(), 259, 2);
  EXPECT_EQ(device.name(), "nvme0n1");
  EXPECT_EQ(device.persistent_id(), "eui.0025388b71b3fe15");
  EXPECT_EQ(device.model(), "Fast Disk 960");
  EXPECT_FALSE(device.stacked()) << "its paths are no disks, so it is what was written to";
}

TEST_F(DeviceInfoTest, ADeviceThatIsGoneIsNamedByItsNumbers) {
  const v1::Device device = ReadDevice(sysfs_.string(), 253, 7);
  EXPECT_EQ(device.name(), "253:7");
  EXPECT_FALSE(device.has_rotational());
  EXPECT_EQ(NameDevice(7, 3).name(), "loop3");
  EXPECT_EQ(NameDevice(8, 32).name(), "sdc");
  EXPECT_EQ(NameDevice(8, 33).name(), "8:33");
}

}  // namespace
}  // namespace fleetblame::agent
