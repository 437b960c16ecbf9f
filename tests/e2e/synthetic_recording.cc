// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/synthetic_recording.h"

#include <memory>
#include <vector>

#include "common/histogram.h"
#include "node-agent/tracer/replay/recorder.h"
#include "node-agent/tracer/replay/scripted_tracer.h"

namespace fleetblame::testing {
namespace {

using namespace fleetblame::agent;  // NOLINT: this file is about nothing else

constexpr DeviceNumber kDisk{7, 0};

// Kernel functions by address; stacks below refer to them.
constexpr const char* kKallsyms =
    "ffffffff81000000 T _stext\n"
    "ffffffff81001000 t ext4_da_write_end\n"
    "ffffffff81002000 t generic_perform_write\n"
    "ffffffff81003000 t ext4_buffered_write_iter\n"
    "ffffffff81004000 t vfs_write\n"
    "ffffffff81005000 T __x64_sys_pwrite64\n"
    "ffffffff81006000 T do_syscall_64\n"
    "ffffffff81007000 T entry_SYSCALL_64_after_hwframe\n"
    "ffffffff81008000 t submit_bio_noacct\n"
    "ffffffff81009000 t ext4_io_submit\n"
    "ffffffff8100a000 t ext4_writepages\n"
    "ffffffff8100b000 t do_writepages\n"
    "ffffffff8100c000 t wb_workfn\n"
    "ffffffff8100d000 t process_one_work\n"
    "ffffffff8100e000 t worker_thread\n"
    "ffffffff8100f000 t kthread\n"
    "ffffffff81010000 T ret_from_fork_asm\n"
    "ffffffff81011000 T _etext\n";

constexpr uint64_t kText = 0xffffffff81000000;

StackDefinition Stack(StackId id, std::vector<uint64_t> functions) {
  for (uint64_t& function : functions) function = kText + (function << 12) + 0x40;
  return {id, std::move(functions)};
}

Row WriteRow(ActorId dirtier, StackId dirtier_stack, uint64_t ios, uint64_t bytes) {
  Row row;
  row.key = {.dirtier_stack = dirtier_stack,
             .issuer_stack = 3,
             .dirtier_actor = dirtier,
             .issuer_actor = 3,
             .device = kDisk,
             .file = 1,
             .operation = Operation::kWrite,
             .confidence = Confidence::kExact,
             .reason = 1};
  row.values.ios = ios;
  row.values.bytes = bytes;
  row.values.wait_ns = ios * 20'000;
  row.values.io_ns = ios * 300'000;
  row.values.wait.Add(HistogramBucket(20'000), ios);
  row.values.io.Add(HistogramBucket(300'000), ios);
  return row;
}

Snapshot Window(int number, uint64_t window_ns) {
  Snapshot snapshot;
  snapshot.start_boot_ns = 1'000'000'000 + static_cast<uint64_t>(number) * window_ns;
  snapshot.end_boot_ns = snapshot.start_boot_ns + window_ns;
  if (number == 0) {
    snapshot.stacks = {Stack(2, {1, 2, 3, 4, 5, 6, 7}),
                       Stack(3, {8, 9, 10, 11, 12, 13, 14, 15, 16})};
    snapshot.actors = {{1, "postgres", 11, "/system.slice/postgresql.service", false},
                       {2, "rsync", 12, "/system.slice/backup.service", false},
                       {3, "kworker", 1, "/", true}};
    snapshot.files = {{1, {8, 1}, 4711, 1, "/var/lib/data/base"}};
  }
  // The split moves from window to window; the sum does not.
  uint64_t first = kBytesPerWindow / 16 * (1 + static_cast<uint64_t>(number) % 15);
  snapshot.rows = {WriteRow(1, 2, 64, first), WriteRow(2, 2, 16, kBytesPerWindow - first)};
  snapshot.books = {{.device = kDisk,
                     .direction = Operation::kWrite,
                     .recorded_bytes = kBytesPerWindow,
                     .kernel_bytes = kBytesPerWindow,
                     .recorded_ios = 80,
                     .kernel_ios = 80}};
  return snapshot;
}

}  // namespace

absl::Status WriteSyntheticRecording(const std::string& path, int windows, uint64_t window_ns) {
  TracerScript script;
  script.info = {.kind = "bpf",
                 .kernel_release = "6.1.0-test",
                 .vmlinux_build_id = "0123456789abcdef0123",
                 .reasons = {"", "background", "sync"},
                 .limitations = {}};
  script.kallsyms = kKallsyms;
  for (int i = 0; i < windows; ++i) script.snapshots.push_back(Window(i, window_ns));
  auto recorder = CreateRecorder(std::make_unique<ScriptedTracer>(std::move(script)), path);
  if (!recorder.ok()) return recorder.status();
  for (int i = 0; i < windows; ++i) {
    auto snapshot = (*recorder)->Collect();
    if (!snapshot.ok()) return snapshot.status();
  }
  return (*recorder)->Finish();
}

}  // namespace fleetblame::testing
