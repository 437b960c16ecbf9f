# SPDX-License-Identifier: Apache-2.0
"""The modules that tests/tagwait wants besides: disks whose tags run out.

They come from the packages that kernels.py has downloaded, and are kept beside what it made of
them. A module that a kernel lacks is left out; the test that wants it skips.
"""

import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile

import kernels

# Loaded by the test itself, each time with other parameters.
ON_DEMAND = ["scsi_debug", "null_blk", "mq_deadline"]
# Loaded at boot, with what they and the ones above depend on.
AT_BOOT = ["sd_mod"]
FOLDERS = re.compile(r"/kernel/(fs/configfs|lib|crypto|arch|block|drivers/block|drivers/scsi)/")


def _unpack(packages, folder):
    modules = {}
    for package in packages:
        stream = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)],
                                  stdout=subprocess.PIPE)
        with tarfile.open(fileobj=stream.stdout, mode="r|") as archive:
            for member in archive:
                if not member.isfile() or ".ko" not in member.name:
                    continue
                if not FOLDERS.search(member.name):
                    continue
                content = archive.extractfile(member).read()
                if member.name.endswith(".xz"):
                    content = lzma.decompress(content)
                name = os.path.basename(member.name).split(".ko")[0].replace("-", "_")
                modules[name] = content
        if stream.wait() != 0:
            raise kernels.Unavailable(f"{package.name} is damaged; remove it and try again")
    return modules


def _choose(modules, folder):
    order = []

    def add(name):
        if name in order or name not in modules:
            return  # built in, or not in this kernel
        for other in kernels._depends(modules[name]):
            add(other)
        file = name.replace("mq_deadline", "mq-deadline")
        (folder / f"{file}.ko").write_bytes(modules[name])
        order.append(file)

    for name in AT_BOOT + ON_DEMAND:
        add(name)
    return order


def get(series, cache, packages):
    """[(path, whether it is loaded at boot)] in load order, for the kernel made of `packages`."""
    target = pathlib.Path(cache) / "kernels" / f"{series}-tagwait"
    record = target / "order.json"
    wish = [sorted(packages), AT_BOOT, ON_DEMAND]
    known = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    if known.get("wish") != wish:
        found = [path for suite in kernels.SERIES[series] for name in packages
                 for path in (pathlib.Path(cache) / "apt" / suite / "packages").glob(name)]
        if not found:
            raise kernels.Unavailable("the kernel's packages are gone; run with --refresh")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as made:
            folder = pathlib.Path(made) / "new"
            folder.mkdir()
            known = {"wish": wish, "order": _choose(_unpack(found, folder), folder)}
            (folder / "order.json").write_text(json.dumps(known), encoding="utf-8")
            shutil.rmtree(target, ignore_errors=True)
            os.rename(folder, target)
    on_demand = {name.replace("mq_deadline", "mq-deadline") for name in ON_DEMAND}
    return [(target / f"{name}.ko", name not in on_demand) for name in known["order"]]
