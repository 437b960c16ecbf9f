// SPDX-License-Identifier: Apache-2.0
//
// The two tables in which the kernel side sums its rows: it adds to one, and the other, that of the
// window before, is read and emptied. To both belong rows that a CPU keeps to itself (hot rows).
//
// Threading: one thread; the kernel side adds at any time.
// Errors: INTERNAL when the kernel refuses a map or a read.
#ifndef NODE_AGENT_TRACER_BPF_ROW_TABLES_H_
#define NODE_AGENT_TRACER_BPF_ROW_TABLES_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "bpf/fleetblame_abi.h"
#include "node-agent/tracer/bpf/map_io.h"

struct fleetblame_bpf;

namespace fleetblame::agent {

class RowTables {
 public:
  explicit RowTables(fleetblame_bpf* skeleton) : skeleton_(skeleton) {}
  ~RowTables();
  RowTables(const RowTables&) = delete;
  RowTables& operator=(const RowTables&) = delete;

  absl::Status Start();

  // A new window begins: from the return on nothing is added to the rows of the one before, which
  // are the next ones that Drain hands over.
  absl::Status BeginWindow();

  // Hands over each row of the window that has ended, and removes it. A key may come several times:
  // once from the table, and once from each CPU.
  absl::Status Drain(const std::function<void(const fb_row_key&, const fb_row&)>& take);

 private:
  absl::Status MakeFence();
  absl::Status WaitForPrograms();
  void DrainHotRows(const std::function<void(const fb_row_key&, const fb_row&)>& take);

  fleetblame_bpf* const skeleton_;
  MappedArray<fb_hot_row> hot_rows_;  // empty where the kernel cannot use them
  int fence_ = -1;
  int fence_inner_ = -1;
  uint32_t window_ = 1;
  uint32_t ended_ = 0;  // the table of the window that has ended
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_ROW_TABLES_H_
