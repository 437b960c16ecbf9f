#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures everything that docs/performance.md promises, one benchmark after the other (they would
# disturb each other), and ends with one table of the figures beside their bars.
#
#   bazel run //tests/bench:bars               # about half an hour
#   bazel run //tests/bench:bars -- --quick    # a few minutes, wider ranges
#
# The cost of the tracer needs root; it is left out, and said to be, for anybody else.
set -u -o pipefail

quick=no
for argument in "$@"; do
  case $argument in
    --quick) quick=yes ;;
    -h | --help) sed -n '4,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "bars: unknown option $argument (--quick, --help)" >&2; exit 2 ;;
  esac
done

report=$(mktemp)
trap 'rm -f "$report"' EXIT

# Runs one benchmark, shows what it says, and keeps the lines that name a bar.
measure() {
  local title=$1
  shift
  printf '\n===== %s\n' "$title"
  if ! "$@" 2>&1 | tee "$report.one"; then
    printf '%-20s did not finish; see above\n' "$title" >>"$report"
  fi
  awk -v title="$title" '
    /after compaction/ { $0 = $0 " (bar 16)" }
    /[(]bar|^bar/ { sub(/^ +/, ""); printf "%-20s %s\n", title, $0 }' "$report.one" >>"$report"
  rm -f "$report.one"
}

overhead=() ingest=() query=()
if [[ $quick == yes ]]; then
  overhead=(--pairs 4 --seconds 2)
  ingest=(--warmup 5 --seconds 10)
  query=(--queries 60)
fi

measure "ingest and wire" tests/bench/ingest --aggregator aggregator/fleetblame-aggregator "${ingest[@]}"
measure "store" tests/bench/store
measure "top over a day" tests/bench/query "${query[@]}"
if [[ $EUID -eq 0 ]]; then
  measure "cost of the tracer" tests/bench/overhead/overhead "${overhead[@]}"
else
  printf '%-20s left out: needs root\n' "cost of the tracer" >>"$report"
fi

printf '\n===== The bars on this machine (%s, %s CPUs)\n' "$(uname -r)" "$(nproc)"
cat "$report"
