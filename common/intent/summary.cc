// SPDX-License-Identifier: Apache-2.0
#include "common/intent/summary.h"

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "common/absl_view.h"
#include "common/intent/canonical.h"

namespace fleetblame {
namespace {

// Functions that are inside of nearly every stack and tell nobody why: marking pages and buffers
// dirty, building and submitting bios, and the journal's wrappers of that.
bool IsPlumbing(std::string_view name) {
  static constexpr std::string_view kPrefixes[] = {
      "submit_bio",
      "__submit_bio",
      "generic_make_request",
      "blk_",
      "__blk_",
      "bio_",
      "__bio_",
      "submit_bh",
      "__submit_bh",
      "ll_rw_block",
      "__folio_mark_dirty",
      "folio_mark_dirty",
      "filemap_dirty_folio",
      "__set_page_dirty",
      "set_page_dirty",
      "account_page_dirtied",
      "folio_account_dirtied",
      "mark_buffer_dirty",
      "block_commit_write",
      "__block_commit_write",
      "block_write_end",
      "block_dirty_folio",
      "noop_dirty_folio",
      "iomap_set_page_dirty",
      "iomap_dirty_folio",
      "iomap_submit_",
      "iomap_dio_submit_bio",
      "iomap_finish_",
      "iomap_write_end",
      "__iomap_write_end",
      "iomap_set_range_dirty",
      "xfs_buf_ioapply",
      "_xfs_buf_ioapply",
      "xfs_buf_submit",
      "__xfs_buf_submit",
      "btrfs_submit_bio",
      "btrfs_submit_chunk",
      "btrfs_submit_bbio",
      "__ext4_handle_dirty_metadata",
      "__ext4_journal_get_write_access",
      "ext4_io_submit",
      "jbd2_journal_dirty_metadata",
      "jbd2_journal_get_write_access",
      "mpage_bio_submit",
      "mpage_submit_folio",
      "__block_write_full",
      "block_write_full",
      "dm_submit_bio",
      "md_submit_bio",
      "set_extent_bit",
      "__set_extent_bit",
      "trace_",
      "__raw_",
      "_raw_",
  };
  for (std::string_view prefix : kPrefixes) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

// Loops that every kernel thread of a kind shares; the function that they run names the thread.
bool IsThreadLoop(std::string_view name) {
  static const auto* const names = new absl::flat_hash_set<absl::string_view>{
      "kthread",        "worker_thread",     "process_one_work",  "process_scheduled_works",
      "rescuer_thread", "kthread_worker_fn", "smpboot_thread_fn", "vhost_task_fn",
  };
  return names->contains(ToAbsl(name));
}

// Index of the outermost frame that says where the stack came from, and how to say it.
size_t FindOrigin(std::span<const std::string_view> frames, std::string* where) {
  for (size_t i = frames.size(); i-- > 0;) {
    std::string_view name = frames[i];
    if (name == kForkFrame || IsThreadLoop(name)) continue;
    if (name == kPageFaultFrame) {
      *where = "page fault";
    } else if (name == kExitToUserFrame) {
      *where = "return to user space";
    } else if (name.starts_with(kSyscallFramePrefix) && i + 1 == frames.size()) {
      *where = std::string(name.substr(kSyscallFramePrefix.size()));
    } else {
      *where = std::string(name);
    }
    return i;
  }
  return frames.size();
}

}  // namespace

IntentSummaryParts SummarizeIntent(std::span<const std::string_view> frames) {
  IntentSummaryParts parts;
  if (frames.empty()) return parts;
  size_t origin = FindOrigin(frames, &parts.where);
  if (origin == frames.size()) {
    // Nothing but a thread's beginning.
    parts.what = std::string(frames.front());
    parts.where.clear();
    return parts;
  }
  size_t what = 0;
  while (what < origin && (IsPlumbing(frames[what]) || frames[what] == kUnknownFrame)) ++what;
  // All plumbing: then the outermost of it is the closest to a reason.
  if (what == origin && origin > 0) what = origin - 1;
  if (what < origin) parts.what = std::string(frames[what]);
  return parts;
}

std::string IntentSummary(std::span<const std::string_view> frames) {
  IntentSummaryParts parts = SummarizeIntent(frames);
  if (parts.what.empty()) return parts.where.empty() ? "(no stack)" : parts.where;
  if (parts.where.empty()) return parts.what;
  return parts.what + " ← " + parts.where;
}

std::string IntentSummary(const v1::Intent& intent) {
  std::vector<std::string_view> frames(intent.frames().begin(), intent.frames().end());
  return IntentSummary(frames);
}

}  // namespace fleetblame
