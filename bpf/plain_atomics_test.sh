#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# Kernels before 5.12 know one atomic operation, an addition whose result nobody asks for. Anything
# else in an object for them, such as the "or" that the compiler makes of adding a constant 0, gets
# every program refused that calls it.
set -euo pipefail

failed=0
for object in "$@"; do
  code=$(llvm-objdump -d "$object")
  # What is looked for is written so by the disassembler: without any hit this test says nothing.
  grep -q 'lock .*+=' <<<"$code" || { echo "$object: no atomic addition found"; failed=1; }
  if grep -E 'lock .*(\|=|&=|\^=)|atomic_fetch|xchg' <<<"$code"; then
    echo "FAILED: $object holds the above, which kernels before 5.12 refuse"
    failed=1
  fi
done
exit "$failed"
