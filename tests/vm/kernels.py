# SPDX-License-Identifier: Apache-2.0
"""Kernels of other Debian suites, downloaded once and kept.

A private apt configuration asks the mirror that this machine's own apt uses, so nothing of the
machine changes. Kept below the cache folder: the packages, and of each kernel its image and the
modules that the tests need, in the order in which they can be loaded.
"""

import hashlib
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import time

# Series, and the suites that have it: the first that answers is taken.
SERIES = {
    "5.10": ["bullseye"],
    "6.1": ["bookworm"],
    "6.12": ["trixie", "bookworm-backports"],
    "7": ["trixie-backports"],
}
# Whatever they depend on comes along.
REQUIRED_MODULES = ["loop", "ext4", "xfs", "btrfs", "f2fs", "overlay"]
# Wanted through the crypto interface, which no dependency tells. Newer kernels build them in.
OPTIONAL_MODULES = ["crc32c_generic", "crc32c_intel", "xxhash_generic", "sha256_generic",
                    "blake2b_generic", "crc32_generic", "aes_generic", "ecb", "cbc", "cts", "xts", "sha512_generic",
                    # Stacked devices.
                    "dm_mod", "dm_crypt", "dm_snapshot", "dm_thin_pool", "dm_flakey", "dm_multipath",
                    "dm_round_robin", "raid0", "raid1", "raid456", "aesni_intel"]
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGE = re.compile(r"^linux-(image|binary|modules|base)-\S*amd64$")
LISTS_MAX_AGE_SECONDS = 24 * 3600


class Unavailable(Exception):
    """The kernel cannot be had here; the message says why."""


def _run(command, env=None, timeout=600, **options):
    try:
        done = subprocess.run(command, env=env, timeout=timeout, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Unavailable(f"{' '.join(command[:3])}: {said[-1] if said else done.returncode}")
    return done.stdout


def own_mirror():
    """The address from which this machine's apt takes its own suite."""
    suite = ""
    for line in pathlib.Path("/etc/os-release").read_text(encoding="utf-8").splitlines():
        if line.startswith("VERSION_CODENAME="):
            suite = line.split("=", 1)[1].strip('"')
    listed = _run(["apt-get", "indextargets", "Created-By: Packages",
                   "--format", "$(REPO_URI) $(RELEASE)"])
    for line in listed.splitlines():
        address, release = line.rsplit(" ", 1)
        if release == suite:
            return address
    raise Unavailable(f"apt on this machine has no source for its own suite ({suite or 'unknown'})")


class Apt:
    """apt for one suite, with lists and packages of its own."""

    def __init__(self, suite, folder):
        self.folder = pathlib.Path(folder)
        for sub in ("lists/partial", "archives/partial"):
            (self.folder / sub).mkdir(parents=True, exist_ok=True)
        sources = self.folder / "sources.list"
        sources.write_text(f"deb [signed-by={KEYRING}] {own_mirror()} {suite} main\n",
                           encoding="utf-8")
        config = self.folder / "apt.conf"
        config.write_text(
            f'Dir::Etc::SourceList "{sources}";\nDir::Etc::SourceParts "-";\n'
            f'Dir::State::Lists "{self.folder}/lists";\nDir::Cache "{self.folder}";\n'
            'Dir::State::status "/dev/null";\nAcquire::Languages "none";\n'
            # Suites that are no longer maintained keep their last signature.
            'Acquire::Check-Valid-Until "false";\nAPT::Sandbox::User "root";\n'
            'Acquire::Retries "3";\n', encoding="utf-8")
        self.env = dict(os.environ, APT_CONFIG=str(config), LC_ALL="C")
        stamp = self.folder / "updated"
        if not stamp.exists() or time.time() - stamp.stat().st_mtime > LISTS_MAX_AGE_SECONDS:
            _run(["apt-get", "update", "-qq"], env=self.env)
            stamp.touch()

    def kernel_packages(self):
        """The packages that make up the suite's kernel."""
        wanted, todo = [], ["linux-image-amd64"]
        while todo:
            package = todo.pop()
            for line in _run(["apt-cache", "depends", package], env=self.env).splitlines():
                match = re.match(r"\s*Depends: (\S+)$", line)
                if match and PACKAGE.match(match[1]) and match[1] not in wanted + todo:
                    todo.append(match[1])
            if package != "linux-image-amd64":
                wanted.append(package)
        if not wanted:
            raise Unavailable("the suite has no kernel packages")
        return wanted

    def download(self, packages):
        before = self.folder / "packages"
        before.mkdir(exist_ok=True)
        _run(["apt-get", "download", "-q", *packages], env=self.env, cwd=before)
        paths = []
        for package in packages:
            found = sorted(before.glob(f"{package}_*.deb"), key=lambda p: p.stat().st_mtime)
            if not found:
                raise Unavailable(f"apt did not deliver {package}")
            paths.append(found[-1])
        return paths


def _module_name(path):
    return os.path.basename(path).split(".ko")[0].replace("-", "_")


def _depends(module_bytes):
    match = re.search(rb"\0depends=([^\0]*)\0", module_bytes)
    names = match[1].decode() if match else ""
    return [name.replace("-", "_") for name in names.split(",") if name]


def _unpack(packages, folder):
    """Takes image and modules out of the packages. Returns {name: path} of the modules."""
    modules, builtin = {}, set()
    for package in packages:
        stream = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)],
                                  stdout=subprocess.PIPE)
        with tarfile.open(fileobj=stream.stdout, mode="r|") as archive:
            for member in archive:
                if not member.isfile():
                    continue
                base = os.path.basename(member.name)
                if base.startswith("vmlinuz"):
                    (folder / "vmlinuz").write_bytes(archive.extractfile(member).read())
                elif base == "modules.builtin":
                    lines = archive.extractfile(member).read().decode().split()
                    builtin.update(_module_name(line) for line in lines)
                elif ".ko" in base and re.search(r"/kernel/(fs|lib|crypto|arch|block|drivers/(?:block|md|scsi|nvme))/",
                                                 member.name):
                    path = folder / "all" / base
                    path.parent.mkdir(exist_ok=True)
                    path.write_bytes(archive.extractfile(member).read())
                    modules[_module_name(base)] = path
        if stream.wait() != 0:
            raise Unavailable(f"{package.name} is damaged; remove it and try again")
    if not (folder / "vmlinuz").exists():
        raise Unavailable("the packages hold no kernel image")
    return modules, builtin


def _choose_modules(modules, builtin, folder, required):
    """Puts the wanted modules and what they need into folder/modules; returns the load order."""
    target = folder / "modules"
    target.mkdir()
    order = []

    def add(name, needed_by):
        if name in order or name in builtin:
            return
        if name not in modules:
            raise Unavailable(f"module {name} is missing (needed by {needed_by})")
        content = modules[name].read_bytes()
        if modules[name].suffix == ".xz":
            content = lzma.decompress(content)
        for other in _depends(content):
            add(other, name)
        (target / f"{name}.ko").write_bytes(content)
        order.append(name)

    for name in OPTIONAL_MODULES:
        if name in modules:
            add(name, "the tests")
    for name in required:
        add(name, "the tests")
    return order


def series_of(text):
    """The series that a person means: 6.1, 7.x, 7.3 ..."""
    text = text.removesuffix(".x")
    if text in SERIES:
        return text
    matches = [name for name in SERIES if text.startswith(name + ".")]
    return matches[0] if len(matches) == 1 else None


def get(series, cache, refresh=False, more_modules=()):
    """Returns {"image", "modules" (paths in load order), "package"} of a kernel of the series."""
    required = REQUIRED_MODULES + [name for name in more_modules if name not in REQUIRED_MODULES]
    wish = hashlib.sha256(json.dumps([required, OPTIONAL_MODULES]).encode()).hexdigest()
    # A folder for each wish: another tree's tests may be reading theirs.
    folder = pathlib.Path(cache) / "kernels" / f"{series}-{wish[:10]}"
    record = folder / "kernel.json"
    if not refresh and record.exists():
        known = json.loads(record.read_text(encoding="utf-8"))
        if known["wish"] == wish:
            return _paths(folder, known)
    if not shutil.which("apt-get"):
        raise Unavailable("this machine has no apt to download kernels with")
    reasons = []
    for suite in SERIES[series]:
        try:
            apt = Apt(suite, pathlib.Path(cache) / "apt" / suite)
            names = apt.kernel_packages()
            version = next((n for n in names if re.search(rf"-{re.escape(series)}\.", n)), None)
            if version is None:
                raise Unavailable(f"has {names[0]}, not {series}")
            packages = apt.download(names)
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as work:
                new = pathlib.Path(work) / "kernel"
                new.mkdir()
                modules, builtin = _unpack(packages, new)
                order = _choose_modules(modules, builtin, new, required)
                shutil.rmtree(new / "all", ignore_errors=True)
                known = {"wish": wish, "order": order, "packages": [p.name for p in packages]}
                (new / record.name).write_text(json.dumps(known, indent=1), encoding="utf-8")
                shutil.rmtree(folder, ignore_errors=True)
                new.rename(folder)
            return _paths(folder, known)
        except Unavailable as reason:
            reasons.append(f"{suite}: {reason}")
    raise Unavailable("; ".join(reasons))


def _paths(folder, known):
    return {"image": folder / "vmlinuz",
            "modules": [folder / "modules" / f"{name}.ko" for name in known["order"]],
            "packages": known["packages"]}
