#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""No chain of calls may need more stack than a kernel gives: 512 bytes for all functions that are
active at once, each rounded up to 32 bytes (kernels from 6.8 on round up to 16 and so take a little
more; the oldest decides).

usage: stack_depth_test.py OBJECT...      fails and shows the chain if one is too deep
       stack_depth_test.py --show OBJECT  shows the deepest chain of each program

A kernel counts the same way, from the accesses that it sees; functions that a kernel never reaches
are counted here too, so this may refuse a little early, never late.
"""

import re
import shutil
import subprocess
import sys

LIMIT = 512
ROUND = 32

SECTION = re.compile(r"^Disassembly of section (\S+):")
FUNCTION = re.compile(r"^([0-9a-f]{16}) <(?!LBB)(\w+)>:")  # LBB: labels within
INSTRUCTION = re.compile(r"^\s+(\d+):\s+(.*)$")
RELOCATION = re.compile(r"R_BPF_64_32\s+(\S+)")
ACCESS = re.compile(r"\(r10 - (\d+)\)")
POINTER = re.compile(r"^(r\d) = r10$")
STEP = re.compile(r"^(r\d) \+= -(\d+)$")


class Function:
    def __init__(self, name, section, start):
        self.name, self.section, self.start = name, section, start
        self.depth = 0
        self.calls = set()  # names, or (section, instruction)


def disassembler():
    for name in ("llvm-objdump", "llvm-objdump-14"):
        if shutil.which(name):
            return name
    sys.exit("llvm-objdump is missing; install the package llvm")


def functions_of(path):
    text = subprocess.run([disassembler(), "-d", "-r", "--no-show-raw-insn", path], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    functions, function, section, called, pointers = [], None, "", None, set()
    for line in text.splitlines():
        if match := SECTION.match(line):
            section = match[1]
        elif match := FUNCTION.match(line):
            function = Function(match[2], section, int(match[1], 16) // 8)
            functions.append(function)
            pointers = set()
        elif "R_BPF_" in line:
            match = RELOCATION.search(line)
            if match and function is not None and called is not None:
                named = not match[1].startswith(".")
                function.calls.add(match[1] if named else (match[1], called + 1))
        elif match := INSTRUCTION.match(line):
            code = match[2].strip()
            for access in ACCESS.finditer(code):
                function.depth = max(function.depth, int(access[1]))
            if match := POINTER.match(code):
                pointers.add(match[1])
            elif match := STEP.match(code):
                if match[1] in pointers:
                    function.depth = max(function.depth, int(match[2]))
            elif match := re.match(r"(r\d) = ", code):
                pointers.discard(match[1])
            match = re.match(r"call (-?\d+)$", code)
            called = int(match[1]) if match else None
    return functions


def deepest(function, by_name, by_place, seen=()):
    """(bytes, functions on the way), the deepest chain from here on."""
    if function in seen:
        raise ValueError(f"{function.name} calls itself")
    best = (0, [])
    for call in function.calls:
        callee = by_name.get(call) if isinstance(call, str) else by_place.get(call)
        if callee is None and isinstance(call, str):
            continue  # a function of the kernel, which has a stack of its own
        if callee is None:
            raise ValueError(f"{function.name} calls {call}, where no function begins")
        best = max(best, deepest(callee, by_name, by_place, seen + (function,)),
                   key=lambda chain: chain[0])
    own = -(-max(function.depth, 1) // ROUND) * ROUND
    return own + best[0], [function] + best[1]


def main(arguments):
    show = arguments[:1] == ["--show"]
    bad = 0
    for path in arguments[show:]:
        functions = functions_of(path)
        by_name = {function.name: function for function in functions}
        by_place = {(function.section, function.start): function for function in functions}
        programs = [function for function in functions if "/" in function.section]
        if not programs:
            sys.exit(f"{path} holds no programs")
        for program in programs:
            size, chain = deepest(program, by_name, by_place)
            if show or size > LIMIT:
                print(f"{size:4} of {LIMIT} bytes: " +
                      " -> ".join(f"{f.name} {f.depth}" for f in chain))
            bad += size > LIMIT
    return 1 if bad and not show else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
