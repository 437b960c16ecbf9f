#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The lists for hosts that only run Fleetblame name the packages of every library that its programs
# are linked to, and no other.
set -euo pipefail
failed=0

# Packages of the libraries that a program names itself; what these need apt knows.
packages_of() {
  local paths=() library path
  while read -r library; do
    path=$(ldd "$1" | awk -v name="$library" '$1 == name { print $3 }')
    [[ -n $path ]] || continue
    # /lib is a link to /usr/lib, and packages know either name.
    path=$(realpath "$path")
    paths+=("$path" "${path#/usr}")
  done < <(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  # One of the two names is always unknown to it.
  { dpkg-query -S "${paths[@]}" 2>/dev/null || true; } | sed 's/:.*//' | sort -u
}

check() {
  local listed
  listed=$(grep -v '^#' "deploy/apt/$1.list" | sort)
  # Every Debian has these.
  local needed
  needed=$(packages_of "$2" | grep -vxE 'libc6|libgcc-s1')
  if [[ $listed != "$needed" ]]; then
    echo "FAILED: deploy/apt/$1.list (<) is not what $2 needs (>):"
    diff <(echo "$listed") <(echo "$needed") || true
    failed=1
  fi
}

command -v dpkg-query >/dev/null || { echo "no dpkg here: nothing to compare with"; exit 0; }
check agent node-agent/fleetblame-agent
check aggregator aggregator/fleetblame-aggregator
check cli cli/fleetblame
exit "$failed"
