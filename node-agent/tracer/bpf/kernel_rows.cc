// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/kernel_rows.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "node-agent/tracer/bpf/table_ids.h"

namespace fleetblame::agent {
namespace {

void MergeValues(const RowValues& from, RowValues* to) {
  to->ios += from.ios;
  to->bytes += from.bytes;
  to->wait_ns += from.wait_ns;
  to->io_ns += from.io_ns;
  to->errors += from.errors;
  to->requeues += from.requeues;
  to->wait.Merge(from.wait);
  to->io.Merge(from.io);
}

uint64_t StandsFor(uint8_t logarithm) { return logarithm == 0 ? 0 : uint64_t{1} << logarithm; }

}  // namespace

Row MakeRow(const fb_row_key& key, const fb_row& row, size_t reasons) {
  Row result;
  result.key.dirtier_stack = key.dirtier_stack;
  result.key.issuer_stack = key.issuer_stack;
  result.key.dirtier_actor = IdIndex(key.dirtier_actor);
  result.key.issuer_actor = IdIndex(key.issuer_actor);
  result.key.device = UnpackDevice(key.dev);
  result.key.partition = key.part;
  result.key.top = UnpackDevice(key.top);
  result.key.file = key.file;
  result.key.operation = static_cast<Operation>(key.op & FB_OP_MASK);
  result.key.confidence = static_cast<Confidence>(key.confidence & FB_CONFIDENCE_MASK);
  result.key.reason = key.reason < reasons ? key.reason : 0;
  result.values.ios = row.ios;
  result.values.bytes = row.bytes;
  result.values.wait_ns = row.wait_ns;
  result.values.io_ns = row.io_ns;
  result.values.errors = row.errors;
  result.values.requeues = row.requeues;
  for (int i = 0; i < FB_HIST_BUCKETS; ++i) {
    if (row.wait[i] != 0) result.values.wait.Add(i, row.wait[i]);
    if (row.io[i] != 0) result.values.io.Add(i, row.io[i]);
  }
  return result;
}

uint64_t IosPerSample(const fb_row_key& key) { return StandsFor(key.op >> FB_WEIGHT_SHIFT); }

uint64_t GroupsPerSample(const fb_row_key& key) {
  return StandsFor(key.confidence >> FB_WEIGHT_SHIFT);
}

bool IsUnseen(const fb_row_key& key) {
  return (key.confidence & FB_CONFIDENCE_MASK) == FB_CONF_UNSEEN;
}

void KeepTopFiles(size_t limit, std::vector<Row>* rows) {
  std::map<FileId, uint64_t> bytes;
  for (const Row& row : *rows) bytes[row.key.file] += row.values.bytes;
  bytes.erase(kNoFile);
  if (bytes.size() <= limit) return;
  std::vector<std::pair<uint64_t, FileId>> order;
  for (const auto& [file, sum] : bytes) order.emplace_back(sum, file);
  std::nth_element(order.begin(), order.begin() + limit, order.end(), std::greater<>());
  std::set<FileId> top;
  for (size_t i = 0; i < limit; ++i) top.insert(order[i].second);
  for (Row& row : *rows) {
    if (!top.contains(row.key.file)) row.key.file = kNoFile;
  }
}

std::vector<Row> MergeRows(std::vector<Row> rows) {
  std::vector<Row> merged;
  std::map<RowKey, size_t> places;
  for (Row& row : rows) {
    auto [place, fresh] = places.emplace(row.key, merged.size());
    if (fresh)
      merged.push_back(std::move(row));
    else
      MergeValues(row.values, &merged[place->second].values);
  }
  return merged;
}

void AddRow(Row row, std::vector<Row>* rows) {
  auto same = std::find_if(rows->begin(), rows->end(),
                           [&](const Row& other) { return other.key == row.key; });
  if (same == rows->end())
    rows->push_back(std::move(row));
  else
    MergeValues(row.values, &same->values);
}

void AddLost(DeviceNumber device, Operation operation, const fb_lost& lost,
             std::vector<Row>* rows) {
  Row row;
  row.key.device = device;
  row.key.operation = operation;
  row.key.confidence = Confidence::kLost;
  row.values.bytes = lost.bytes;
  row.values.ios = lost.ios;
  row.values.errors = lost.errors;
  AddRow(std::move(row), rows);
}

Operation DirectionOf(Operation operation) {
  switch (operation) {
    case Operation::kRead:
      return Operation::kRead;
    case Operation::kWrite:
    case Operation::kWriteZeroes:
    case Operation::kSecureErase:
      return Operation::kWrite;
    case Operation::kDiscard:
      return Operation::kDiscard;
    default:
      return Operation::kUnspecified;
  }
}

}  // namespace fleetblame::agent
