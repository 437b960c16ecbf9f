// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/intent_split.h"

namespace fleetblame::aggregator {
namespace {

void Count(HostNumber host, google::protobuf::RepeatedField<uint32_t>* hosts,
           google::protobuf::RepeatedField<uint32_t>* counts) {
  if (hosts->empty() || hosts->Get(hosts->size() - 1) != host) {
    hosts->Add(host);
    counts->Add(0);
  }
  ++(*counts)[counts->size() - 1];
}

}  // namespace

IntentSplit::Part& IntentSplit::PartOf(IntentNumber intent) {
  std::unique_ptr<Part>& part = parts_[intent];
  if (part == nullptr) part = std::make_unique<Part>();
  return *part;
}

void IntentSplit::Add(HostNumber host, const v1::RowBlock& rows) {
  RowBlockReader reader(rows);
  BlockRow row;
  while (reader.Next(&row)) {
    if (row.dirtier_intent != 0) {
      Part& part = PartOf(row.dirtier_intent);
      part.dirtier.Add(row);
      Count(host, part.lists.mutable_dirtier_hosts(), part.lists.mutable_dirtier_row_counts());
    }
    if (row.issuer_intent != 0 && row.issuer_intent != row.dirtier_intent) {
      Part& part = PartOf(row.issuer_intent);
      part.issuer.Add(row);
      Count(host, part.lists.mutable_issuer_hosts(), part.lists.mutable_issuer_row_counts());
    }
  }
}

void IntentSplit::Finish(absl::FunctionRef<void(IntentNumber, const stored::IntentRows&)> sink) {
  for (auto& [intent, part] : parts_) {
    *part->lists.mutable_dirtier_rows() = part->dirtier.Finish();
    *part->lists.mutable_issuer_rows() = part->issuer.Finish();
    sink(intent, part->lists);
  }
  parts_.clear();
}

}  // namespace fleetblame::aggregator
