// SPDX-License-Identifier: Apache-2.0
#include "common/intent/summary.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fleetblame {
namespace {

std::string Summary(const std::vector<std::string_view>& frames) { return IntentSummary(frames); }

TEST(IntentSummary, NamesTheInnermostMeaningfulFunctionAndTheCall) {
  EXPECT_EQ(Summary({"__folio_mark_dirty", "mark_buffer_dirty", "block_commit_write",
                     "block_write_end", "ext4_da_write_end", "generic_perform_write",
                     "ext4_buffered_write_iter", "vfs_write", "sys_pwrite64"}),
            "ext4_da_write_end ← pwrite64");
  EXPECT_EQ(Summary({"__folio_mark_dirty", "mark_buffer_dirty", "__ext4_handle_dirty_metadata",
                     "ext4_mark_iloc_dirty", "ext4_unlink", "sys_unlink"}),
            "ext4_mark_iloc_dirty ← unlink");
}

TEST(IntentSummary, NamesOtherOrigins) {
  EXPECT_EQ(Summary({"__folio_mark_dirty", "ext4_page_mkwrite", "do_wp_page", "page_fault"}),
            "ext4_page_mkwrite ← page fault");
  EXPECT_EQ(Summary({"submit_bio_noacct", "jbd2_journal_commit_transaction", "kjournald2",
                     "kthread", "ret_from_fork"}),
            "jbd2_journal_commit_transaction ← kjournald2");
  EXPECT_EQ(Summary({"submit_bio", "ext4_writepages", "wb_writeback", "wb_workfn",
                     "process_one_work", "worker_thread", "kthread", "ret_from_fork"}),
            "ext4_writepages ← wb_workfn");
  EXPECT_EQ(Summary({"ext4_release_file", "__fput", "task_work_run", "exit_to_user_mode"}),
            "ext4_release_file ← return to user space");
}

TEST(IntentSummary, DegeneratesGracefully) {
  EXPECT_EQ(Summary({}), "(no stack)");
  EXPECT_EQ(Summary({"[lost]"}), "[lost]");
  EXPECT_EQ(Summary({"sys_read"}), "read");
  EXPECT_EQ(Summary({"submit_bio_noacct", "blk_mq_submit_bio", "sys_read"}),
            "blk_mq_submit_bio ← read");
  EXPECT_EQ(Summary({"0x?", "0x?", "0x?"}), "0x? ← 0x?");
  EXPECT_EQ(Summary({"kthread", "ret_from_fork"}), "kthread");
}

TEST(IntentSummary, ReadsTheMessage) {
  v1::Intent intent;
  intent.add_frames("ext4_da_write_end");
  intent.add_frames("sys_write");
  EXPECT_EQ(IntentSummary(intent), "ext4_da_write_end ← write");
}

}  // namespace
}  // namespace fleetblame
