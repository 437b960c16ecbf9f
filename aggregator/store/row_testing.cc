// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/row_testing.h"

#include <algorithm>

namespace fleetblame::aggregator {
namespace {

std::string Text(const BlockRow& r, bool histograms) {
  std::string out;
  auto add = [&out](uint64_t v) { out += std::to_string(v) + " "; };
  for (uint64_t v :
       {r.dirtier_intent, r.issuer_intent, r.dirtier_actor, r.issuer_actor, r.device, r.file}) {
    add(v);
  }
  add(r.operation);
  add(r.confidence);
  for (uint64_t v : {r.ios, r.bytes, r.wait_ns, r.io_ns, r.errors, r.requeues}) add(v);
  if (!histograms) return out;
  for (const SparseHistogram* h : {&r.wait, &r.io}) {
    out += "| ";
    for (auto [bucket, count] : h->entries()) add(bucket), add(count);
  }
  return out;
}

}  // namespace

std::vector<std::string> RowTexts(const v1::RowBlock& block, bool histograms) {
  std::vector<std::string> out;
  RowBlockReader reader(block);
  BlockRow row;
  while (reader.Next(&row)) out.push_back(Text(row, histograms));
  std::sort(out.begin(), out.end());
  return out;
}

void DrawHistogram(uint64_t total, int ns_bits, std::mt19937_64& random, SparseHistogram* histogram,
                   uint64_t* sum_ns) {
  const auto bits = static_cast<uint64_t>(ns_bits);
  while (total > 0) {
    const uint64_t n = 1 + random() % total;
    const uint64_t ns = random() >> (64 - bits + random() % bits);
    if (sum_ns != nullptr) *sum_ns += n * ns;
    histogram->Add(HistogramBucket(ns), n);
    total -= n;
  }
}

}  // namespace fleetblame::aggregator
