// SPDX-License-Identifier: Apache-2.0
//
// Rows of a window: from what the kernel side summed to what a Snapshot holds, one row for each
// key.
//
// Pure functions.
// Units: as in tracer.h.
#ifndef NODE_AGENT_TRACER_BPF_KERNEL_ROWS_H_
#define NODE_AGENT_TRACER_BPF_KERNEL_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bpf/fleetblame_abi.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {

// The row that a kernel row is. A reason that is not below `reasons` becomes "no writeback".
Row MakeRow(const fb_row_key& key, const fb_row& row, size_t reasons);

// How many IOs each IO of the row stands for; 0 = it was no sample of IOs.
uint64_t IosPerSample(const fb_row_key& key);

// How many groups of pages each group of the row stands for; 0 = it was no sample of pages.
uint64_t GroupsPerSample(const fb_row_key& key);

// Whether it is of pages that were not looked at: see unseen_pages.h.
bool IsUnseen(const fb_row_key& key);

// Rows of all but the `limit` files with most bytes forget their file.
void KeepTopFiles(size_t limit, std::vector<Row>* rows);

// The same rows with each key once, in the order in which the keys first appear.
std::vector<Row> MergeRows(std::vector<Row> rows);

// Adds to the row of this key.
void AddRow(Row row, std::vector<Row>* rows);

// Lost bytes are rows too, so that the rows of a window add up to what its books say.
void AddLost(DeviceNumber device, Operation operation, const fb_lost& lost, std::vector<Row>* rows);

// Which of /sys/block/*/stat's directions an operation counts in; unspecified = in none.
Operation DirectionOf(Operation operation);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_KERNEL_ROWS_H_
