#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the agent's --check and ground-truth scenarios on another kernel, in a virtual machine.

Usually by `./run-tests vm [--kernel 6.1] [--scenario 'ext4_*']`. By hand:

    bazel build //tests/vm:all
    tests/vm/run.py --kernel 6.1 [--scenario 'ext4_*'] [--programs PROGRAM...]

Exit status: 0 every case passed or the kernel cannot be had here, 1 a case or the command failed,
or a program is not built.
The environment may hold XML_OUTPUT_FILE (where test.xml is wanted), FLEETBLAME_VM_CACHE (where
kernels are kept) and FLEETBLAME_VM_RESULTS (a folder for what came of it, as JSON).
docs/testing-on-other-kernels.md says more.
"""

import argparse
import fnmatch
import os
import pathlib
import shutil
import sys
import tempfile
import time

import initramfs
import kernels
import machine
import report
import scenarios
import tagwait_modules
import test_modules

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BIN = ROOT / "bazel-bin"
# Emulated, on a busy machine, the kernel may take minutes to look through the programs once.
LOAD_SECONDS = 240
# Not a ground-truth case but a program of its own: tests/tagwait.
TAGWAIT = "tagwait"
TAGWAIT_SECONDS = 900
SCENARIO_SECONDS = 40
# How long all of them together may take.
GROUP_SECONDS = 1500
MKFS = {"mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs", "mkfs.btrfs": "btrfs-progs",
        "mkfs.f2fs": "f2fs-tools"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", default="6.1", choices=list(kernels.SERIES))
    parser.add_argument("--scenario", action="append", default=[],
                        help="name of a ground-truth case, * for any text; may be repeated")
    parser.add_argument("--all-paths", action="store_true",
                        help="also every other way to the disk that the suite knows (Paths/*)")
    parser.add_argument("--tracer", default="bpf", choices=["bpf"], help="the tracer on trial")
    parser.add_argument("--agent", type=pathlib.Path, default=BIN / "node-agent/fleetblame-agent")
    parser.add_argument("--groundtruth", type=pathlib.Path,
                        default=BIN / "tests/groundtruth/groundtruth_test")
    parser.add_argument("--writer", type=pathlib.Path, default=BIN / "tests/groundtruth/writer")
    parser.add_argument("--errors", type=pathlib.Path,
                        default=BIN / "tests/groundtruth/errors_test")
    parser.add_argument("--layers", type=pathlib.Path,
                        default=BIN / "tests/groundtruth/layers_test")
    parser.add_argument("--cgroup", type=pathlib.Path,
                        default=BIN / "tests/groundtruth/cgroup_test")
    parser.add_argument("--sampling", type=pathlib.Path,
                        default=BIN / "tests/groundtruth/sampling_test")
    parser.add_argument("--page-sampling", type=pathlib.Path,
                        default=BIN / "tests/groundtruth/page_sampling_test")
    parser.add_argument("--tagwait", type=pathlib.Path,
                        default=BIN / "tests/tagwait/tagwait_test")
    parser.add_argument("--cache", type=pathlib.Path,
                        default=os.environ.get("FLEETBLAME_VM_CACHE") or
                        pathlib.Path.home() / ".cache/fleetblame/vm")
    parser.add_argument("--refresh", action="store_true",
                        help="ask the mirror for a newer kernel of the series")
    parser.add_argument("--command", help="run this instead, and print what it says")
    parser.add_argument("--with", dest="extra", action="append", type=pathlib.Path, default=[],
                        help="a program to put into the machine besides, for --command")
    return parser.parse_args()


def steps_of(options):
    if options.command:
        return [machine.Step("command", 1800, options.command)]
    if options.scenario == [TAGWAIT]:
        return [tagwait_step(options.kernel)]
    steps = [machine.Step("check", LOAD_SECONDS, "fleetblame-agent --check --state-dir /tmp/state")]
    for group in scenarios.GROUPS:
        wanted = group.filter_for(options.kernel, options.scenario, options.all_paths)
        if not wanted:
            continue
        seconds = GROUP_SECONDS
        if options.scenario and not any("*" in name for name in options.scenario):
            seconds = (SCENARIO_SECONDS + LOAD_SECONDS * group.tracer_each) * len(options.scenario)
        steps.append(machine.Step(group.name, LOAD_SECONDS + seconds,
                                  group.command.format(filter=wanted) +
                                  f" --gtest_output=xml:/vm/out/{group.name}.xml"))
    if with_tagwait(options):
        steps.append(tagwait_step(options.kernel))
    return steps


def with_tagwait(options):
    return TAGWAIT in options.scenario or not (options.scenario or options.command)


def with_own_modules(options):
    own = [name for group in scenarios.GROUPS for name in group.own]
    return any(fnmatch.fnmatchcase(name, pattern) for name in own for pattern in options.scenario)


def tagwait_step(kernel):
    return machine.Step(TAGWAIT, LOAD_SECONDS + TAGWAIT_SECONDS,
                        f"tagwait_test --gtest_filter='{test_modules.tagwait_filter(kernel)}' "
                        "--gtest_output=xml:/vm/out/tagwait.xml")


def hardware_for(options, steps, folder):
    """QEMU's arguments for what the steps need, with the files behind it made in `folder`."""
    names = {step.name for step in steps}
    arguments = []
    for group in scenarios.GROUPS:
        if group.name not in names and not options.command:
            continue
        for name, size in group.disks.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.truncate(size)
        arguments += [argument.format(folder=folder) for argument in group.hardware]
    return arguments


def not_built(options):
    """The programs for the machine that are not there; no machine is started without them."""
    programs = [options.agent, options.groundtruth, options.writer, options.errors, options.layers,
                options.cgroup, options.sampling, options.page_sampling, *options.extra]
    if with_tagwait(options):
        programs.append(options.tagwait)
    return [str(program) for program in programs if not program.exists()]


def find_program(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin")


def root_filesystem(options, kernel, steps):
    files = initramfs.Initramfs()
    files.file("/bin/busybox", find_program("busybox"))
    files.file("/init", HERE / "guest_init.sh")
    files.program("/vm/bin/fleetblame-agent", options.agent)
    files.program("/vm/bin/groundtruth_test", options.groundtruth)
    files.program("/vm/bin/writer", options.writer)
    files.program("/vm/bin/errors_test", options.errors)
    files.program("/vm/bin/layers_test", options.layers)
    files.program("/vm/bin/cgroup_test", options.cgroup)
    files.program("/vm/bin/sampling_test", options.sampling)
    files.program("/vm/bin/page_sampling_test", options.page_sampling)
    for tool in {tool for group in scenarios.GROUPS for tool in group.tools}:
        if find_program(tool):
            files.program(f"/vm/bin/{tool}", find_program(tool))
    for program in options.extra:
        files.program(f"/vm/bin/{program.name}", program)
    for name in MKFS:
        files.program(f"/vm/bin/{name}", find_program(name))
    if os.path.exists("/etc/mke2fs.conf"):
        files.file("/etc/mke2fs.conf", "/etc/mke2fs.conf")
    on_demand = {name for group in scenarios.GROUPS for name in group.on_demand}
    modules = [(module, module.stem not in on_demand) for module in kernel["modules"]]
    if with_tagwait(options):
        files.program("/vm/bin/tagwait_test", options.tagwait)
        known = {module.name for module, _ in modules}
        modules += [(module, now) for module, now in tagwait_modules.get(
            options.kernel, str(options.cache), kernel["packages"]) if module.name not in known]
    modules += [(module, False) for module in kernel.get("own_modules", [])]
    for module, _ in modules:
        files.file(f"/vm/modules/{module.name}", module)
    files.text("/vm/load-order", "".join(f"{module.name}\n" for module, now in modules if now))
    files.text("/vm/steps", "".join(f"{s.name}\t{s.seconds}\t{s.command}\n" for s in steps))
    files.text("/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    files.text("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")
    return files


def unavailable(options):
    """(why not here or "", the kernel)."""
    for name, package in ((machine.QEMU, "qemu-system-x86"), ("busybox", "busybox-static"),
                          *MKFS.items()):
        if not find_program(name):
            return f"{name} is missing; install the package {package}", None
    if os.uname().machine != "x86_64":
        return f"the virtual machines are x86_64, this machine is {os.uname().machine}", None
    try:
        return "", kernel_of(options, options.refresh)
    except (kernels.Unavailable, OSError) as error:
        return f"kernel {options.kernel} cannot be had here: {error}", None


def kernel_of(options, refresh):
    kernel = kernels.get(options.kernel, str(options.cache), refresh,
                         [module for group in scenarios.GROUPS
                          for module in group.modules + group.on_demand])
    if not (with_tagwait(options) or with_own_modules(options)):
        return kernel
    try:
        kernel["own_modules"] = test_modules.get(options.kernel, str(options.cache), kernel)
    except kernels.Unavailable:
        if refresh:
            raise
        # The mirror has no headers any more for the kernel that was kept.
        return kernel_of(options, refresh=True)
    return kernel


def run(options, kernel):
    """Returns (cases, kernel release, missing hooks, end of the console of a machine that failed)."""
    steps = steps_of(options)
    with tempfile.TemporaryDirectory(prefix="fleetblame-vm-") as folder:
        initrd = os.path.join(folder, "initrd")
        root_filesystem(options, kernel, steps).write(initrd)
        vm = machine.Machine(kernel["image"], initrd, folder,
                             hardware=hardware_for(options, steps, folder))
        begin = time.monotonic()
        results, release, problem, step = vm.run(steps)
        cases, found, missing = [], [], []
        if problem and vm.died_early:
            # Before anything of ours ran: an emulated kernel now and then does. Twice is a finding.
            console = vm.console_tail()
            print(f"the machine {problem}; it is booted once more. The end of its console:\n{console}")
            cases.append(report.Case(report.SECOND_BOOT, report.PASSED, time.monotonic() - begin,
                                     f"the machine {problem}, and was booted once more"))
            results, release, problem, step = vm.run(steps)
        limits = {s.name: s.seconds for s in steps}
        for result in results:
            print(f"== {release} {result.name}: exit code {result.exit_code}, "
                  f"{result.seconds:.0f} s")
            print(result.files.get(f"{result.name}.log", b"").decode(errors="replace"))
            if result.name == "check":
                cases.append(report.check_case(result))
                missing = report.missing_hooks(result)
            elif options.command and result.exit_code != 0:
                cases.append(report.Case(result.name, report.FAILED, result.seconds,
                                         f"it ended with exit code {result.exit_code}"))
            elif result.name in (TAGWAIT, *(group.name for group in scenarios.GROUPS)):
                found += report.groundtruth_cases(result, limits[result.name])
        cases += report.asked_for(found, options.scenario,
                                  scenarios.left_out(options.kernel, options.scenario))
        console = vm.console_tail() if problem else ""
        if problem:
            print(f"the machine {problem}; the end of its console:\n{console}")
            cases.append(report.Case(step or "boot", report.FAILED, time.monotonic() - begin,
                                     f"the machine {problem}"))
        return cases, release, missing, console


def main():
    options = arguments()
    if missing := not_built(options):
        print(f"not built: {', '.join(missing)}; run `bazel build //tests/vm:all` first")
        return 1
    why, kernel = unavailable(options)
    if why:
        print(f"skipped: {why}")
        cases, release = [report.Case("boot", report.SKIPPED, 0, why)], ""
        missing, console = [], ""
    else:
        cases, release, missing, console = run(options, kernel)
    if options.command:
        return 1 if any(case.outcome == report.FAILED for case in cases) else 0
    if xml := os.environ.get("XML_OUTPUT_FILE"):
        report.write_xml(xml, options.kernel, release, cases)
    if folder := os.environ.get("FLEETBLAME_VM_RESULTS"):
        os.makedirs(folder, exist_ok=True)
        report.write_json(os.path.join(folder, f"{options.kernel}.json"), options.kernel, release,
                          kernel["packages"] if kernel else [], cases, missing, console)
    for case in cases:
        if case.outcome != report.PASSED:
            print(f"{case.outcome}: {release} {case.name}: {case.reason}")
    return 1 if any(case.outcome == report.FAILED for case in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
