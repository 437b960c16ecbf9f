# SPDX-License-Identifier: Apache-2.0
"""One run of a virtual machine that goes through a list of steps and tells what came of each."""

import base64
import dataclasses
import pathlib
import subprocess
import time

QEMU = "qemu-system-x86_64"
BOOT_SECONDS = 180
# A step has its own limit inside; the machine itself may be what hangs.
GRACE_SECONDS = 45


@dataclasses.dataclass
class Step:
    name: str
    seconds: int
    command: str


@dataclasses.dataclass
class Result:
    name: str
    exit_code: int
    seconds: float
    files: dict  # name -> bytes


class Machine:
    """Emulated throughout, so that it runs wherever its host does."""

    def __init__(self, image, initramfs, folder, cpus=2, memory_mib=1536, hardware=()):
        """`hardware`: more arguments for QEMU, each a device of the machine or what is behind it."""
        self.folder = pathlib.Path(folder)
        self.died_early = False  # the last run ended by itself before its first step
        self.console = self.folder / "console.log"
        self.report = self.folder / "report.log"
        self.command = [
            QEMU, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(cpus),
            "-m", str(memory_mib), "-nodefaults", "-no-user-config", "-display", "none",
            "-no-reboot", "-kernel", str(image), "-initrd", str(initramfs),
            "-append", "console=ttyS0 panic=-1 no_timer_check rdinit=/init loglevel=5 mitigations=off",
            "-serial", f"file:{self.console}", "-serial", f"file:{self.report}",
            *hardware,
        ]

    def run(self, steps):
        """Returns (results, kernel release, what went wrong or "", name of the step it was in)."""
        for path in (self.console, self.report):
            path.write_bytes(b"")
        process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        limits = {step.name: step.seconds for step in steps}
        report = _Report()
        deadline = time.monotonic() + BOOT_SECONDS
        problem = ""
        try:
            with open(self.report, "rb") as source:
                while not report.done:
                    event = report.take(source.read())
                    if event is not None:
                        deadline = time.monotonic() + GRACE_SECONDS + limits.get(report.running, 0)
                    elif process.poll() is not None:
                        report.take(source.read())
                        if not report.done:
                            problem = self._ended(process, report)
                        break
                    elif time.monotonic() > deadline:
                        problem = f"hangs {report.where()}"
                        break
                    else:
                        time.sleep(0.1)
        finally:
            if process.poll() is None and report.done:
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    pass
            if process.poll() is None:
                process.kill()
            process.wait()
        self.died_early = problem.startswith("ended") and not (report.results or report.running)
        return report.results, report.release, problem, report.running

    def _ended(self, process, report):
        said = process.stderr.read().decode(errors="replace").strip()
        return f"ended {report.where()}" + (f" ({said})" if said else "")

    def console_tail(self, lines=60):
        text = self.console.read_bytes().decode(errors="replace").replace("\r", "")
        return "\n".join(text.splitlines()[-lines:])


class _Report:
    """Reads the lines that guest_init.sh writes, as they come."""

    def __init__(self):
        self.results, self.release, self.running, self.done = [], "", "", False
        self._rest, self._file, self._files = b"", None, {}

    def where(self):
        if self.running:
            return f"in step {self.running}"
        return "between steps" if self.release else "while booting"

    def take(self, data):
        """Returns the last event among the new lines, or None."""
        if not data:
            return None
        lines = (self._rest + data).replace(b"\r", b"").split(b"\n")
        self._rest = lines.pop()
        event = None
        for line in lines:
            if line.startswith(b"@"):
                event = self._event(line[1:].decode(errors="replace").split(" "))
            elif self._file is not None:
                self._files[self._file] += line
        return event

    def _event(self, words):
        kind = words[0]
        if kind == "boot":
            self.release = words[1]
        elif kind == "begin":
            self.running, self._files = words[1], {}
        elif kind == "file":
            self._file = words[1]
            self._files[self._file] = b""
        elif kind == "endfile":
            self._file = None
        elif kind == "end":
            files = {name: base64.b64decode(text) for name, text in self._files.items()}
            self.results.append(Result(words[1], int(words[2]), float(words[3]), files))
            self.running = ""
        elif kind == "done":
            self.done = True
        return kind
