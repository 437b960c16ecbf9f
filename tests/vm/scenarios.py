# SPDX-License-Identifier: Apache-2.0
"""What runs on every kernel."""

import dataclasses
import fnmatch

# What every kernel goes through: each filesystem with somebody else bringing the data to the disk.
SCENARIOS = [
    "ext4_write_syncfs", "ext4_direct", "ext4_mmap_syncfs", "ext4_small_files", "ext4_two_writers",
    "ext4_read", "ext4_nojournal_write_syncfs", "ext4_datajournal_write_syncfs",
    "xfs_write_syncfs", "xfs_small_files", "btrfs_write_syncfs", "btrfs_pwrite_fsync",
]
# Stacked devices: of each driver the cheapest.
STACKS = ["ext4_dm_linear", "ext4_dm_crypt", "ext4_md_raid1", "ext4_nvme_multipath"]
# What a kernel cannot give, and why: series -> name -> reason.
NO_ERASE = {"disk_secure_erase": "no disk there erases securely; the tests' own is built for 6.1"}
NOT_TOLD = {"sampled_direct_writes": "a bio does not say that it is direct IO"}
LEFT_OUT = {
    "5.10": {**NO_ERASE, **NOT_TOLD,
             "xfs_md_raid0": "parts of a split IO are lost: docs/tracer.md, What is an estimate",
             "disk_nvme_failover": "its driver waits 30 s for each IO after QEMU's controller failed"},
    "6.1": NOT_TOLD,
    "6.12": NO_ERASE,
    "7": {**NO_ERASE, "ext4_laptop": "it ignores vm.laptop_mode",
          "xfs_laptop": "it ignores vm.laptop_mode"},
}
# Kernels that go through the other ways to the disk (Paths/*) as well, unless told otherwise, and those
# ways in which the other kernels differ.
ALL_PATHS = ["6.1"]
SOME_PATHS = {
    "5.10": ["ext4_partition_write_syncfs", "xfs_partition_small_files", "xfs_directories",
             "ext4_dsync"],
    "7": ["ext4_fscrypt_write_syncfs", "disk_buffered_fsync", "xfs_trim"],
}
# Two controllers of one NVMe subsystem, and two namespaces that both of them lead to. Of the second
# one, requests are under way for long, so that a controller that fails always leaves some behind.
NVME_DISKS = {"nvme1": 400 << 20, "nvme2": 64 << 20}
NVME = ("-drive", "if=none,id=nvme1,format=raw,cache=unsafe,file={folder}/nvme1",
        "-drive", "if=none,id=nvme2,format=raw,cache=unsafe,file={folder}/nvme2,"
                  "throttling.bps-write=1048576",
        "-device", "nvme-subsys,id=subsystem,nqn=fleetblame",
        "-device", "nvme,id=path1,serial=fleetblame,subsys=subsystem",
        "-device", "nvme,id=path2,serial=fleetblame,subsys=subsystem",
        "-device", "nvme-ns,bus=path1,drive=nvme1,nsid=1,shared=on",
        "-device", "nvme-ns,bus=path1,drive=nvme2,nsid=2,shared=on")


@dataclasses.dataclass
class Group:
    """Scenarios of one gtest program: a step of the run, whose cases are counted one by one."""
    name: str
    command: str  # {filter} is what of it to run
    cases: list  # on every kernel that does not leave them out
    more_filter: str = ""  # on the kernels in more_on
    some: dict = dataclasses.field(default_factory=dict)  # of it on others, or on these
    modules: tuple = ()  # that it needs beside those of kernels.py, in order of loading
    on_demand: tuple = ()  # modules that its command loads by itself
    more_on: tuple = tuple(ALL_PATHS)
    prefix: str = "*/"  # of a case, in the names of its program
    tools: tuple = ()  # programs of this machine that it uses, if there are any
    tracer_each: bool = False  # each case loads a tracer of its own
    # Devices of the machine, as QEMU's arguments; {folder} is one of the run's own.
    hardware: tuple = ()
    disks: dict = dataclasses.field(default_factory=dict)  # files in that folder -> their size
    own: tuple = ()  # of its cases, those that take modules of the tests' own: test_modules.py

    def filter_for(self, kernel, patterns=(), all_paths=False):
        """What to run of it, for gtest: what is asked for by name, or what there is on this kernel; "" if
        that is nothing."""
        wanted = [self.prefix + pattern for pattern in patterns]
        if not wanted:
            wanted = [self.prefix + name for name in self.cases]
            if self.more_filter and (all_paths or kernel in self.more_on and kernel not in self.some):
                wanted.append(self.more_filter)
            else:
                wanted += [f"{self.more_filter}/{name}" for name in self.some.get(kernel, [])]
            if not wanted:
                return ""
        without = ":".join(self.prefix + name for name in LEFT_OUT.get(kernel, {}))
        return ":".join(wanted) + (f"-{without}" if without else "")


def left_out(kernel, patterns):
    """{name: why} of what is left out on a kernel, among what is asked for by name."""
    return {name: why for name, why in LEFT_OUT.get(kernel, {}).items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)}


GROUPS = [
    Group("groundtruth",
          "[ ! -e /vm/modules/fb_erase.ko ] || insmod /vm/modules/fb_erase.ko; "
          "groundtruth_test --one-tracer --writer=/vm/bin/writer --gtest_filter='{filter}'",
          SCENARIOS, "Paths/*", SOME_PATHS, modules=("quota_v2",), own=("disk_secure_erase",)),
    Group("errors",
          # Other steps load it with other parameters.
          "trap 'rmmod scsi_debug' EXIT; insmod /vm/modules/scsi_debug.ko && "
          "errors_test --writer=/vm/bin/writer --gtest_filter='{filter}'",
          [], "ErrorsTest.scsi_*", modules=("sd_mod",), on_demand=("scsi_debug",), prefix="*."),
    # Where loading the programs takes least; there and on 6.1 reads alone are sampled.
    Group("sampling", "sampling_test --writer=/vm/bin/writer --gtest_filter='{filter}'",
          [], "SamplingTest.sampled_*", more_on=("5.10",), prefix="*."),
    # Each case loads the programs anew, and this machine's own kernel goes through them too.
    Group("page_sampling", "page_sampling_test --writer=/vm/bin/writer --gtest_filter='{filter}'",
          [], "PageSamplingTest.pages_*", more_on=(), prefix="*.", tracer_each=True),
    Group("layers",
          "trap 'rmmod nvme nbd' EXIT; insmod /vm/modules/nbd.ko nbds_max=1; "
          "insmod /vm/modules/nvme.ko; "
          "layers_test --writer=/vm/bin/writer --gtest_filter='{filter}'",
          [], "All/*", {"6.1": STACKS, "7": STACKS}, on_demand=("nbd", "nvme"),
          tools=("dmsetup", "mdadm", "lvm"), hardware=NVME, disks=NVME_DISKS),
    Group("cgroup", "cgroup_test --writer=/vm/bin/writer --gtest_filter='{filter}'",
          [], "All/*", {"6.1": []}, tracer_each=True),
]
