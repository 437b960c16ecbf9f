// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/replay/synthetic_script.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/histogram.h"

namespace fleetblame::agent {
namespace {

constexpr uint64_t kTextBase = 0xffffffff81000000;
constexpr uint64_t kBpfBase = 0xffffffffa0000000;
constexpr uint64_t kFunctionBytes = 0x400;
constexpr DeviceNumber kDisks[] = {{8, 0}, {259, 0}};

// Call paths, innermost first, as one kernel has them.
const std::vector<std::vector<std::string>>& Paths() {
  static const auto* const paths = new std::vector<std::vector<std::string>>{
      {"__folio_mark_dirty", "mark_buffer_dirty", "block_write_end", "ext4_da_write_end",
       "generic_perform_write", "ext4_buffered_write_iter", "vfs_write", "__x64_sys_pwrite64",
       "do_syscall_64", "entry_SYSCALL_64_after_hwframe"},
      {"iomap_dirty_folio", "iomap_write_end", "iomap_file_buffered_write",
       "xfs_file_buffered_write", "vfs_write", "ksys_write", "do_syscall_64",
       "entry_SYSCALL_64_after_hwframe"},
      {"ext4_mark_iloc_dirty", "ext4_dirty_inode", "__mark_inode_dirty", "touch_atime",
       "iterate_dir", "__x64_sys_getdents64", "do_syscall_64", "entry_SYSCALL_64_after_hwframe"},
      {"ext4_page_mkwrite", "do_page_mkwrite", "do_wp_page", "handle_mm_fault", "exc_page_fault",
       "asm_exc_page_fault"},
      {"submit_bio_noacct", "jbd2_journal_commit_transaction", "kjournald2", "kthread",
       "ret_from_fork", "ret_from_fork_asm"},
      {"submit_bio_noacct", "ext4_io_submit", "ext4_do_writepages", "ext4_writepages",
       "do_writepages", "__writeback_single_inode", "writeback_sb_inodes", "wb_writeback",
       "wb_workfn", "process_one_work", "worker_thread", "kthread", "ret_from_fork",
       "ret_from_fork_asm"},
      {"submit_bio_noacct", "iomap_dio_bio_iter", "__iomap_dio_rw", "ext4_file_read_iter",
       "vfs_read", "__x64_sys_pread64", "do_syscall_64", "entry_SYSCALL_64_after_hwframe"},
      {"submit_bio_noacct", "submit_bio_wait", "blkdev_issue_flush", "ext4_sync_file", "do_fsync",
       "__x64_sys_fsync", "do_syscall_64", "entry_SYSCALL_64_after_hwframe"},
  };
  return *paths;
}

class Generator {
 public:
  explicit Generator(const SyntheticOptions& options) : options_(options), random_(options.seed) {}

  TracerScript Make() {
    TracerScript script;
    script.info = {.kind = "bpf",
                   .kernel_release = "6.18.0-synthetic",
                   .vmlinux_build_id = "0123456789abcdefghij",
                   .reasons = {"", "background", "vmscan", "sync", "periodic"},
                   .limitations = {}};
    LayOutKernel(&script);
    for (int w = 0; w < options_.windows; ++w) script.snapshots.push_back(Window(w));
    for (int i = 0; i < options_.trace_records; ++i) script.trace.push_back(Record(i));
    return script;
  }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }

  void LayOutKernel(TracerScript* script) {
    uint64_t at = kTextBase;
    script->kallsyms = absl::StrFormat("%016x T _text\n", at);
    for (const auto& path : Paths()) {
      for (const std::string& function : path) {
        if (!addresses_.try_emplace(function, at + kFunctionBytes).second) continue;
        at += kFunctionBytes;
        absl::StrAppendFormat(&script->kallsyms, "%016x t %s\n", at, function);
        // What nobody calls lies in between, as in life.
        at += kFunctionBytes;
        absl::StrAppendFormat(&script->kallsyms, "%016x t unused_%d\n", at, at & 0xffff);
      }
    }
    absl::StrAppendFormat(&script->kallsyms, "%016x T _etext\n", at + kFunctionBytes);
    absl::StrAppendFormat(&script->kallsyms, "%016x t bpf_prog_6deef7357e7b4530_on_dirty\t[bpf]\n",
                          kBpfBase);
  }

  std::vector<uint64_t> Addresses(const std::vector<std::string>& path) {
    std::vector<uint64_t> addresses = {kBpfBase + 0x123};
    for (const std::string& f : path) {
      addresses.push_back(addresses_.at(f) + 1 + Below(kFunctionBytes - 1));
    }
    return addresses;
  }

  // Ids are handed out on first use and defined in the same snapshot.
  StackId Stack(size_t path, Snapshot* s) {
    auto [it, inserted] = stacks_.try_emplace(path, static_cast<StackId>(2 + stacks_.size()));
    if (inserted && s != nullptr) s->stacks.push_back({it->second, Addresses(Paths()[path])});
    return it->second;
  }

  ActorId Actor(size_t which, Snapshot* s) {
    static constexpr std::string_view kComms[] = {"postgres", "rsync",        "journald",
                                                  "cp",       "kworker/u8:1", "jbd2/sda1-8"};
    which %= std::size(kComms);
    auto [it, inserted] = actors_.try_emplace(which, static_cast<ActorId>(1 + actors_.size()));
    if (inserted && s != nullptr) {
      bool kernel = which >= 4;
      s->actors.push_back({it->second, std::string(kComms[which]), 100 + which,
                           kernel ? "/" : absl::StrCat("/system.slice/unit", which, ".service"),
                           kernel});
    }
    return it->second;
  }

  FileId File(size_t which, Snapshot* s) {
    if (which == 0) return kNoFile;
    auto [it, inserted] = files_.try_emplace(which, static_cast<FileId>(1 + files_.size()));
    if (inserted && s != nullptr) {
      s->files.push_back(
          {it->second, {8, 1}, 1000 + which, 7, absl::StrCat("/srv/data/file", which)});
    }
    return it->second;
  }

  RowKey Key(Snapshot* s) {
    RowKey key;
    key.device = kDisks[Below(2)];
    uint64_t kind = Below(10);
    if (kind < 6) {
      key.operation = Operation::kWrite;
      key.confidence = Below(8) == 0 ? Confidence::kJournal : Confidence::kExact;
      key.dirtier_stack = Stack(Below(4), s);
      key.issuer_stack = Stack(4 + Below(2), s);
      key.dirtier_actor = Actor(Below(4), s);
      key.issuer_actor = Actor(4 + Below(2), s);
      key.reason = static_cast<uint8_t>(Below(5));
      key.file = File(Below(6), s);
    } else if (kind < 9) {
      key.operation = Operation::kRead;
      key.confidence = Confidence::kIssuer;
      key.dirtier_stack = key.issuer_stack = Stack(6, s);
      key.dirtier_actor = key.issuer_actor = Actor(Below(4), s);
    } else if (Below(2) == 0) {
      key.operation = Operation::kFlush;
      key.confidence = Confidence::kIssuer;
      key.dirtier_stack = key.issuer_stack = Stack(7, s);
      key.dirtier_actor = key.issuer_actor = Actor(Below(4), s);
    } else {
      key.operation = Operation::kWrite;
      key.confidence = Confidence::kLost;
      key.issuer_stack = kLostStack;
    }
    return key;
  }

  RowValues Values(Operation operation) {
    RowValues v;
    v.ios = 1 + Below(200);
    v.bytes = operation == Operation::kFlush ? 0 : v.ios * 4096;
    for (uint64_t i = 0; i < v.ios; ++i) {
      uint64_t wait = 1000 + Below(1'000'000), io = 50'000 + Below(20'000'000);
      v.wait_ns += wait;
      v.io_ns += io;
      v.wait.Add(HistogramBucket(wait), 1);
      v.io.Add(HistogramBucket(io), 1);
    }
    v.errors = Below(50) == 0 ? 1 : 0;
    v.requeues = Below(20) == 0 ? 1 : 0;
    return v;
  }

  Snapshot Window(int number) {
    Snapshot s;
    s.start_boot_ns = 1'000'000'000'000 + static_cast<uint64_t>(number) * options_.window_ns;
    s.end_boot_ns = s.start_boot_ns + options_.window_ns;
    std::set<RowKey> keys;
    for (int i = 0; i < options_.rows_per_window; ++i) {
      RowKey key = Key(&s);
      if (!keys.insert(key).second) continue;
      s.rows.push_back({key, Values(key.operation)});
    }
    s.books = BooksOf(s.rows);
    if (Below(2) == 0) s.losses["rows_nomem"] = 1 + Below(3);
    return s;
  }

  static std::vector<Books> BooksOf(const std::vector<Row>& rows) {
    std::map<std::pair<DeviceNumber, Operation>, Books> books;
    for (const Row& r : rows) {
      if (r.key.operation != Operation::kRead && r.key.operation != Operation::kWrite) continue;
      Books& b = books[{r.key.device, r.key.operation}];
      b.device = r.key.device;
      b.direction = r.key.operation;
      (r.key.confidence == Confidence::kLost ? b.lost_bytes : b.recorded_bytes) += r.values.bytes;
      b.kernel_bytes += r.values.bytes;
      b.recorded_ios += r.values.ios;
      b.kernel_ios += r.values.ios;
    }
    std::vector<Books> list;
    for (const auto& [key, b] : books) list.push_back(b);
    return list;
  }

  // Only of stacks and actors that some window defines.
  TraceRecord Record(int number) {
    TraceRecord r;
    uint64_t span = static_cast<uint64_t>(options_.windows) * options_.window_ns;
    r.complete_boot_ns = 1'000'000'000'000 + static_cast<uint64_t>(number) * span /
                                                 static_cast<uint64_t>(options_.trace_records);
    r.device = kDisks[Below(2)];
    r.sector = Below(1 << 20) * 8;
    r.bytes = 4096 * (1 + Below(8));
    r.operation = Operation::kWrite;
    r.rwbs = "WS";
    r.wait_ns = Below(1'000'000);
    r.io_ns = Below(10'000'000);
    r.confidence = Confidence::kExact;
    r.dirtier_stack = stacks_.empty() ? kNoStack : stacks_.begin()->second;
    r.issuer_stack = r.dirtier_stack;
    r.dirtier_actor = actors_.empty() ? kNoActor : actors_.begin()->second;
    r.issuer_actor = r.dirtier_actor;
    r.dirtier_tid = 1234;
    r.issuer_tid = 55;
    r.merged_bios = static_cast<uint32_t>(Below(4));
    return r;
  }

  const SyntheticOptions options_;
  std::mt19937_64 random_;
  std::map<std::string, uint64_t> addresses_;
  std::map<size_t, StackId> stacks_;
  std::map<size_t, ActorId> actors_;
  std::map<size_t, FileId> files_;
};

}  // namespace

TracerScript MakeSyntheticScript(const SyntheticOptions& options) {
  return Generator(options).Make();
}

}  // namespace fleetblame::agent
