// SPDX-License-Identifier: Apache-2.0
#include "common/loss_counters.h"

namespace fleetblame {
namespace {

struct Known {
  std::string_view name;
  LossMeaning meaning;
};

constexpr Known kKnown[] = {
    // ---- the tracer
    {"stack_nomem", LossMeaning::kBlame},
    {"stack_uncached", LossMeaning::kNote},
    {"stack_walks", LossMeaning::kNote},
    {"actor_nomem", LossMeaning::kBlame},
    {"act_nomem", LossMeaning::kBlame},
    {"act_stale", LossMeaning::kBlame},
    {"pgtree_nomem", LossMeaning::kBlame},
    {"inode_nomem", LossMeaning::kNote},
    {"task_nomem", LossMeaning::kNote},
    {"bio_nomem", LossMeaning::kBytes},
    {"bio_reused", LossMeaning::kNote},
    {"end_missed", LossMeaning::kNote},
    {"bio_expired", LossMeaning::kNote},
    {"bio_unknown", LossMeaning::kNote},
    {"skipped_failed", LossMeaning::kBlame},
    {"bio_resized", LossMeaning::kNote},
    {"range_nomem", LossMeaning::kNote},
    {"bvec_cut", LossMeaning::kNote},
    {"share_overflow", LossMeaning::kNote},
    {"ledger_overflow", LossMeaning::kNote},
    {"chain_cut", LossMeaning::kBytes},
    {"rows_nomem", LossMeaning::kBytes},
    {"trace_dropped", LossMeaning::kNote},
    {"nested", LossMeaning::kBytes},
    {"files_capped", LossMeaning::kNote},
    {"hooks_missed", LossMeaning::kBytes},
    {"ios_estimated", LossMeaning::kNote},
    {"ios_estimated_variance", LossMeaning::kNote},
    // ---- tag waits: nothing of these concerns bytes
    {"tagwait_unknown", LossMeaning::kNote},
    {"tagwait_waits_nomem", LossMeaning::kNote},
    {"tagwait_rows_nomem", LossMeaning::kNote},
    {"tagwait_holders_nomem", LossMeaning::kNote},
    {"tagwait_holders_cut", LossMeaning::kNote},
    {"tagwait_hooks_missed", LossMeaning::kNote},
    {"tagwait_rows_folded", LossMeaning::kNote},
    {"tagwait_rows_dropped", LossMeaning::kNote},
    // ---- the agent
    {"rows_folded", LossMeaning::kBlame},
    {"files_folded", LossMeaning::kNote},
    {"unknown_ids", LossMeaning::kBlame},
    {"definitions_lost", LossMeaning::kBlame},
    {"collect_errors", LossMeaning::kBytes},
    {"spool_dropped_batches", LossMeaning::kBytes},
    {"spool_coarsened_batches", LossMeaning::kNote},
    {"spool_corrupt_records", LossMeaning::kBytes},
    {"spool_write_errors", LossMeaning::kNote},
    {"rejected_batches", LossMeaning::kBytes},
    {"watchdog_shed", LossMeaning::kBlame},
};

}  // namespace

LossMeaning MeaningOfLoss(std::string_view counter) {
  for (const Known& known : kKnown) {
    if (known.name == counter) return known.meaning;
  }
  return LossMeaning::kBlame;
}

}  // namespace fleetblame
