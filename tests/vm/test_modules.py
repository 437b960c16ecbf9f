# SPDX-License-Identifier: Apache-2.0
"""Kernel modules of the tests' own (tests/modules), built for one of the kernels.

The kernel's headers come from the mirror like the kernel itself, and nothing is installed. The
modules get BTF, as those of the distribution have it, so that BPF programs can attach to them. What
was built is kept beside the kernel for as long as neither it nor the sources change.
"""

import hashlib
import json
import lzma
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile

import kernels

# Built with this machine's compiler, so for the kernel of its own suite alone.
SERIES = ["6.1"]
NAMES = ["fb_tag_event", "fb_reserved", "fb_erase"]
# The cases of tests/tagwait that need them.
CASES = ["ScsiDebug.FirstFormOfTheTracepoint", "Reserved.*"]
SOURCES = pathlib.Path(__file__).resolve().parents[1] / "modules"
HEADERS = re.compile(r"^linux-(headers|kbuild)-\S+$")


def tagwait_filter(kernel):
    """What of tests/tagwait a kernel goes through."""
    return "*" if kernel in SERIES else f"*-{':'.join(CASES)}"


def _vmlinux(image, target):
    """Unpacks the kernel itself out of its boot image (the boot protocol says where it is)."""
    content = image.read_bytes()
    setup = (content[0x1F1] or 4) + 1
    offset, length = struct.unpack_from("<II", content, 0x248)
    packed = content[setup * 512 + offset:][:length]
    try:
        target.write_bytes(lzma.LZMADecompressor().decompress(packed))
    except lzma.LZMAError as error:
        raise kernels.Unavailable(f"{image} is not packed as expected: {error}") from error


def _header_packages(apt, release):
    wanted, todo = [], [f"linux-headers-{release}"]
    while todo:
        package = todo.pop()
        wanted.append(package)
        listed = kernels._run(["apt-cache", "depends", package], env=apt.env)
        for name in re.findall(r"^\s*Depends: (\S+)$", listed, re.MULTILINE):
            if HEADERS.match(name) and name not in wanted + todo:
                todo.append(name)
    return wanted


def _build(series, cache, kernel, folder):
    image = re.match(r"linux-image-(\S+?)_", kernel["packages"][0])
    if not image:
        raise kernels.Unavailable(f"{kernel['packages'][0]} does not name a release")
    release = image[1]
    suite = kernels.SERIES[series][0]
    apt = kernels.Apt(suite, pathlib.Path(cache) / "apt" / suite)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".build-") as work:
        work = pathlib.Path(work)
        for package in apt.download([*_header_packages(apt, release), "pahole"]):
            kernels._run(["dpkg-deb", "-x", str(package), str(work / "root")])
        headers = work / "root/usr/src" / f"linux-headers-{release}"
        makefile = headers / "Makefile"
        makefile.write_text(makefile.read_text(encoding="utf-8").replace(
            "/usr/src", str(work / "root/usr/src")), encoding="utf-8")
        shutil.copytree(SOURCES, work / "module")
        kernels._run(["make", "-s", "-C", str(headers), f"M={work}/module", "modules"])
        _vmlinux(pathlib.Path(kernel["image"]), work / "vmlinux")
        folder.mkdir()
        for name in NAMES:
            module = work / "module" / f"{name}.ko"
            kernels._run([str(work / "root/usr/bin/pahole"), "-J",
                          f"--btf_base={work}/vmlinux", str(module)])
            kernels._run(["strip", "-g", str(module)])
            shutil.copy(module, folder)


def get(series, cache, kernel):
    """Paths of the modules for `kernel`; none for a kernel that they are not built for."""
    if series not in SERIES:
        return []
    wish = hashlib.sha256(json.dumps(kernel["packages"]).encode())
    for source in sorted(SOURCES.iterdir()):
        if source.name == "BUILD.bazel":
            continue
        wish.update(source.name.encode() + source.read_bytes())
    wish.update(pathlib.Path(__file__).read_bytes())
    folder = pathlib.Path(cache) / "kernels" / f"{series}-own-{wish.hexdigest()[:10]}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as new:
            made = pathlib.Path(new) / "modules"
            _build(series, cache, kernel, made)
            try:
                os.rename(made, folder)
            except OSError:
                if not folder.exists():  # another run was faster
                    raise
    return [folder / f"{name}.ko" for name in NAMES]
