// SPDX-License-Identifier: Apache-2.0
//
// Sorts the rows of many hosts by intent: what stands under an intent's key in rollups.
//
// Threading: belongs to one thread.
#ifndef AGGREGATOR_STORE_INTENT_SPLIT_H_
#define AGGREGATOR_STORE_INTENT_SPLIT_H_

#include <cstdint>
#include <map>
#include <memory>

#include "absl/functional/function_ref.h"
#include "aggregator/store/store.h"
#include "aggregator/store/stored.pb.h"
#include "common/row_block.h"

namespace fleetblame::aggregator {

class IntentSplit {
 public:
  // Hosts must come one after the other.
  void Add(HostNumber host, const v1::RowBlock& rows);
  // Calls `sink` for each intent, in order of number, and is empty afterwards.
  void Finish(absl::FunctionRef<void(IntentNumber, const stored::IntentRows&)> sink);

 private:
  struct Part {
    RowBlockBuilder dirtier;
    RowBlockBuilder issuer;
    stored::IntentRows lists;  // all but the blocks
  };
  Part& PartOf(IntentNumber intent);

  std::map<IntentNumber, std::unique_ptr<Part>> parts_;
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_INTENT_SPLIT_H_
