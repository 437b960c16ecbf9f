#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The units are what systemd understands, and the agent's leaves it what it needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
failed=0
fail() {
  echo "FAILED: $*"
  failed=1
}

if command -v systemd-analyze >/dev/null; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  for unit in *.service; do
    # The programs are not installed here.
    sed -E 's,^ExecStart=[^ ]+,ExecStart=/bin/true,' "$unit" >"$work/$unit"
    complaints=$(systemd-analyze verify "$work/$unit" 2>&1) || fail "$unit: systemd-analyze verify"
    [[ -z $complaints ]] || fail "$unit: $complaints"
  done
else
  echo "systemd-analyze is missing: the units are only searched"
fi

agent=fleetblame-agent.service
# setting: what the agent would lack
while IFS=: read -r setting lacks; do
  ! grep -qE "^$setting$" "$agent" || fail "$agent: $setting takes away $lacks"
done <<'EOF'
ProtectKernelTunables=(yes|true|1|on):/proc/kallsyms, the names of all stacks
ProtectKernelLogs=(yes|true|1|on):CAP_SYSLOG, the addresses in /proc/kallsyms
PrivateUsers=(yes|true|1|on):privileges over the kernel
ProcSubset=pid:/proc/kallsyms, /proc/modules, /proc/stat
PrivateNetwork=(yes|true|1|on):the aggregator
EOF
for capability in SYS_ADMIN BPF PERFMON SYSLOG SYS_RESOURCE DAC_READ_SEARCH; do
  grep -qE "^CapabilityBoundingSet=.*\bCAP_$capability\b" "$agent" || fail "$agent: no CAP_$capability"
done
for call in bpf perf_event_open; do
  grep -qE "^SystemCallFilter=.*\b$call\b" "$agent" || fail "$agent: the system call $call is filtered"
done
for path in RuntimeDirectory=fleetblame StateDirectory=fleetblame/agent; do
  grep -qxF "$path" "$agent" || fail "$agent: $path is missing"
done
exit "$failed"
