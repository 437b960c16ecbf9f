# SPDX-License-Identifier: Apache-2.0
"""What runs on every kernel."""

import dataclasses

# What every kernel goes through: each filesystem with somebody else bringing the data to the disk.
SCENARIOS = [
    "ext4_write_syncfs", "ext4_direct", "ext4_mmap_syncfs", "ext4_small_files", "ext4_two_writers",
    "ext4_read", "ext4_nojournal_write_syncfs", "ext4_datajournal_write_syncfs",
    "xfs_write_syncfs", "xfs_small_files", "btrfs_write_syncfs", "btrfs_pwrite_fsync",
]
# What a kernel cannot give, and why: docs/testing-on-other-kernels.md says what it gives instead.
LEFT_OUT = {
    # No hook in ext4 tells who wrote a page, and nothing else does with data=journal.
    "5.10": ["ext4_datajournal_write_syncfs"],
}
# Kernels that go through the other ways to the disk (Paths/*) as well, unless told otherwise.
ALL_PATHS = ["6.1"]


@dataclasses.dataclass
class Group:
    """Scenarios of one gtest program: a step of the run, whose cases are counted one by one."""
    name: str
    command: str  # {filter} is what of it to run
    cases: list  # on every kernel that does not leave them out
    more_filter: str = ""  # on the kernels in ALL_PATHS
    modules: tuple = ()  # that it needs beside those of kernels.py, in order of loading

    def filter_for(self, kernel):
        wanted = [f"*/{name}" for name in self.cases if name not in LEFT_OUT.get(kernel, [])]
        if self.more_filter and kernel in ALL_PATHS:
            wanted.append(self.more_filter)
        return ":".join(wanted)


GROUPS = [
    Group("groundtruth",
          "groundtruth_test --one-tracer --writer=/vm/bin/writer --gtest_filter='{filter}'",
          SCENARIOS, "Paths/*"),
]
