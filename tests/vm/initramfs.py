# SPDX-License-Identifier: Apache-2.0
"""A root file system in memory for a virtual machine: busybox, programs with their shared
libraries, and kernel modules, as an uncompressed archive that the kernel unpacks at boot."""

import os
import pathlib
import re
import stat
import subprocess


def libraries_of(program):
    """Paths of the shared libraries that a program needs, its loader among them."""
    done = subprocess.run(["ldd", str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False)
    if "not found" in done.stdout:
        raise RuntimeError(f"{program}: {done.stdout}")
    return re.findall(r"(/\S+) \(0x", done.stdout)  # nothing for a static program


class Initramfs:
    def __init__(self):
        self._entries = {}  # path in the guest, without the first slash -> (mode, content)

    def directory(self, path):
        path = path.strip("/")
        if path and path not in self._entries:
            self.directory(os.path.dirname(path))
            self._entries[path] = (stat.S_IFDIR | 0o755, b"")

    def text(self, path, content, mode=0o755):
        self.directory(os.path.dirname(path))
        self._entries[path.strip("/")] = (stat.S_IFREG | mode, content.encode())

    def file(self, path, source):
        self.directory(os.path.dirname(path))
        self._entries[path.strip("/")] = (stat.S_IFREG | 0o755, pathlib.Path(source).read_bytes())

    def link(self, path, target):
        self.directory(os.path.dirname(path))
        self._entries[path.strip("/")] = (stat.S_IFLNK | 0o777, target.encode())

    def program(self, path, source):
        """A program and whatever libraries it needs, where its loader looks for them."""
        self.file(path, source)
        for library in libraries_of(source):
            self.file(library, library)

    def write(self, path):
        """Writes the archive ("newc" cpio)."""
        with open(path, "wb") as out:
            for number, name in enumerate(sorted(self._entries), start=1):
                self._entry(out, number, name, *self._entries[name])
            # The first program's standard output, before it can mount /dev.
            self._entry(out, len(self._entries) + 1, "dev/console", stat.S_IFCHR | 0o600, b"", (5, 1))
            self._entry(out, 0, "TRAILER!!!", 0, b"")

    @staticmethod
    def _entry(out, number, name, mode, content, device=(0, 0)):
        encoded = name.encode() + b"\0"
        fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(encoded), 0]
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
        out.write(head + b"\0" * (-len(head) % 4))
        out.write(content + b"\0" * (-len(content) % 4))
