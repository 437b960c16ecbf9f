#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the agent's --check and ground-truth scenarios on another kernel, in a virtual machine.

    bazel build //node-agent:fleetblame-agent //tests/groundtruth:all
    tests/vm/run.py --kernel 6.1 [--scenario 'ext4_write_syncfs*'] [--seconds 300]

Exit status: 0 every step passed, 1 one failed or hung, 2 wrong usage, 3 the kernel or a program
cannot be had here. docs/testing-on-other-kernels.md says what was seen.
"""

import argparse
import os
import pathlib
import shutil
import sys
import tempfile

import initramfs
import kernels
import machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path.home() / ".cache/fleetblame/vm"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", default="6.1", choices=sorted(kernels.SERIES))
    parser.add_argument("--scenario", default="ext4_write_syncfs*",
                        help="part of the name of ground-truth cases, as a gtest pattern")
    parser.add_argument("--seconds", type=int, default=300, help="limit of the scenarios")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "bazel-bin",
                        help="where Bazel left the programs")
    return parser.parse_args()


def root_filesystem(bin_dir, kernel, steps):
    files = initramfs.Initramfs()
    files.file("/bin/busybox", shutil.which("busybox") or "/bin/busybox")
    files.file("/init", pathlib.Path(__file__).parent / "guest_init.sh")
    files.program("/vm/bin/fleetblame-agent", bin_dir / "node-agent/fleetblame-agent")
    for name in ("groundtruth_test", "writer"):
        files.program(f"/vm/bin/{name}", bin_dir / "tests/groundtruth" / name)
    for name in ("mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"):
        path = shutil.which(name, path=os.environ["PATH"] + ":/sbin:/usr/sbin")
        if path:
            files.program(f"/vm/bin/{name}", path)
    if os.path.exists("/etc/mke2fs.conf"):
        files.file("/etc/mke2fs.conf", "/etc/mke2fs.conf")
    for module in kernel["modules"]:
        files.file(f"/vm/modules/{module.name}", module)
    files.text("/vm/load-order", "".join(f"{module.name}\n" for module in kernel["modules"]))
    files.text("/vm/steps", "".join(f"{s.name}\t{s.seconds}\t{s.command}\n" for s in steps))
    files.text("/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    files.text("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")
    return files


def show(results, release, problem, vm):
    for result in results:
        print(f"{release}  {result.name}: {'passed' if result.exit_code == 0 else 'FAILED'} "
              f"({result.seconds:.0f} s)")
        if result.exit_code != 0 or result.name == "check":
            for content in result.files.values():
                print(content.decode(errors="replace")[-6000:])
    if problem:
        print(f"the machine {problem}; the end of its console:\n{vm.console_tail()}")


def main():
    options = arguments()
    steps = [
        machine.Step("check", 60, "fleetblame-agent --check --state-dir /tmp/state"),
        machine.Step("groundtruth", options.seconds,
                     "groundtruth_test --one-tracer --writer=/vm/bin/writer "
                     f"--gtest_filter=*{options.scenario}"),
    ]
    try:
        kernel = kernels.get(options.kernel, str(CACHE))
        with tempfile.TemporaryDirectory() as folder:
            initrd = os.path.join(folder, "initrd")
            root_filesystem(options.bin, kernel, steps).write(initrd)
            vm = machine.Machine(kernel["image"], initrd, folder)
            results, release, problem = vm.run(steps)
            show(results, release, problem, vm)
    except (kernels.Unavailable, OSError, RuntimeError) as error:
        print(f"not here: {error}", file=sys.stderr)
        return 3
    good = not problem and len(results) == len(steps) and all(r.exit_code == 0 for r in results)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
