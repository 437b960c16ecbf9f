// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/tagwait/tag_sysfs.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace fleetblame::agent {
namespace {

namespace fs = std::filesystem;

class TagSysfs : public ::testing::Test {
 protected:
  TagSysfs() : root_(fs::path(::testing::TempDir()) / "tag_sysfs") {
    fs::remove_all(root_);
    fs::create_directories(root_ / "dev/block");
  }
  ~TagSysfs() override { fs::remove_all(root_); }

  void Put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  void Disk(const std::string& number, const std::string& directory) {
    fs::create_directories(root_ / directory / "queue");
    fs::create_symlink(root_ / directory, root_ / "dev/block" / number);
  }

  const fs::path root_;
};

TEST_F(TagSysfs, ScsiHost) {
  const std::string pci = "devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0";
  const std::string disk = pci + "/host2/target2:0:0/2:0:0:0/block/sda";
  Disk("8:0", disk);
  Put(pci + "/vendor", "0x1000");
  Put(pci + "/device", "0x005d");
  Put(pci + "/subsystem_vendor", "0x1028");
  Put(pci + "/subsystem_device", "0x1f47");
  Put("class/scsi_host/host2/proc_name", "megaraid_sas");
  Put("class/scsi_host/host2/can_queue", "4");
  Put("class/scsi_host/host2/cmd_per_lun", "128");
  Put("class/scsi_host/host2/board_name", "PERC \x01H730");
  v1::TagSet set;
  ReadController(root_, 8, 0, &set);
  EXPECT_EQ(set.driver(), "megaraid_sas");
  EXPECT_EQ(set.host(), "host2");
  EXPECT_EQ(set.model(), "PERC ?H730");
  EXPECT_EQ(set.pci_address(), "0000:3b:00.0");
  EXPECT_EQ(set.pci_id(), "1000:005d");
  EXPECT_EQ(set.pci_subsystem_id(), "1028:1f47");
  EXPECT_EQ(set.can_queue(), 4u);
  EXPECT_EQ(set.cmd_per_lun(), 128u);
}

TEST_F(TagSysfs, WithoutATextThePciIdsAreTheModel) {
  const std::string pci = "devices/pci0000:00/0000:00:1f.2";
  Disk("8:16", pci + "/ata1/host1/target1:0:0/1:0:0:0/block/sdb");
  Put(pci + "/vendor", "0x8086");
  Put(pci + "/device", "0x2922");
  Put("class/scsi_host/host1/proc_name", "<NULL>");
  fs::create_directories(root_ / "bus/pci/drivers/ahci");
  fs::create_symlink(root_ / "bus/pci/drivers/ahci", root_ / pci / "driver");
  v1::TagSet set;
  ReadController(root_, 8, 16, &set);
  EXPECT_EQ(set.driver(), "ahci");
  EXPECT_EQ(set.model(), "8086:2922");
  EXPECT_FALSE(set.has_can_queue());
}

TEST_F(TagSysfs, Nvme) {
  Disk("259:0", "devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1");
  Put("class/nvme/nvme0/model", "Fast Disk 9000   ");
  Put("class/nvme/nvme0/firmware_rev", "1.2");
  v1::TagSet set;
  ReadController(root_, 259, 0, &set);
  EXPECT_EQ(set.driver(), "nvme");
  EXPECT_EQ(set.host(), "nvme0");
  EXPECT_EQ(set.model(), "Fast Disk 9000");
  EXPECT_EQ(set.firmware(), "1.2");
}

TEST_F(TagSysfs, NullBlkAndWhatIsGone) {
  Disk("252:0", "devices/virtual/block/nullb0");
  v1::TagSet set;
  ReadController(root_, 252, 0, &set);
  EXPECT_EQ(set.driver(), "null_blk");
  EXPECT_EQ(set.host(), "");
  v1::TagSet gone;
  ReadController(root_, 9, 9, &gone);
  EXPECT_EQ(gone.ByteSizeLong(), 0u);
}

TEST_F(TagSysfs, Queue) {
  const std::string disk = "devices/virtual/block/sda";
  Disk("8:0", disk);
  Put(disk + "/queue/scheduler", "none [mq-deadline] kyber");
  Put(disk + "/queue/nr_requests", "64");
  Put(disk + "/device/queue_depth", "32");
  v1::TagDisk got;
  ReadQueue(root_, 8, 0, &got);
  EXPECT_EQ(got.scheduler(), "mq-deadline");
  EXPECT_EQ(got.nr_requests(), 64u);
  EXPECT_EQ(got.queue_depth(), 32u);
  Put(disk + "/queue/scheduler", "none");
  v1::TagDisk plain;
  ReadQueue(root_, 8, 0, &plain);
  EXPECT_EQ(plain.scheduler(), "none");
}

}  // namespace
}  // namespace fleetblame::agent
