#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
#
# The first program of the virtual machine. Runs the steps in /vm/steps, each a line
#   NAME<TAB>SECONDS<TAB>COMMAND
# and tells what came of them on the second serial port, in lines that start with @:
#   @boot KERNEL SECONDS        @begin NAME        @end NAME EXIT-CODE SECONDS
#   @file NAME, then base64, then @endfile         @done
# /vm/out/NAME.log holds what a step printed; other files it leaves there are sent too.
busybox=/bin/busybox
$busybox mkdir -p /proc /sys /dev /tmp /run /mnt /vm/out /root
$busybox mount -t proc proc /proc
$busybox mount -t sysfs sysfs /sys
$busybox mount -t devtmpfs devtmpfs /dev
$busybox mkdir -p /dev/shm
$busybox mount -t tmpfs -o size=90% tmpfs /dev/shm
$busybox mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
$busybox mount -t securityfs securityfs /sys/kernel/security 2>/dev/null
$busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
export PATH=/vm/bin:/sbin:/usr/sbin:/usr/bin:/bin HOME=/root
$busybox --install -s /bin
ip link set lo up
while read -r module; do
  insmod "/vm/modules/$module" || echo "insmod $module failed"
done </vm/load-order

exec 3>/dev/ttyS1
stty raw <&3 2>/dev/null
now() { cut -d' ' -f1 /proc/uptime; }
# Kernel threads print to the console as well; a line of its own is what counts.
say() { echo "$*" >&3; }
send() {
  say "@file ${1##*/}"
  base64 "$1" >&3
  say "@endfile"
}

say "@boot $(uname -r) $(now)"
tab=$(printf '\t')
while IFS=$tab read -r name seconds command; do
  say "@begin $name"
  echo "== $name: $command"
  start=$(now)
  # Children of a step are in its session: none may disturb the next.
  log="/vm/out/$name.log"
  : >"$log"
  # On the console as well while it runs: that is all that is left when the machine hangs.
  tail -f "$log" &
  tail=$!
  timeout -k 5 "$seconds" sh -c "$command" >"$log" 2>&1 </dev/null
  code=$?
  sleep 0.2
  kill $tail
  for file in /vm/out/"$name".*; do send "$file"; done
  say "@end $name $code $(awk "BEGIN { print $(now) - $start }")"
done </vm/steps
say "@done"
sync
poweroff -f
