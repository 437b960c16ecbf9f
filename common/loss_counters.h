// SPDX-License-Identifier: Apache-2.0
//
// What the loss counters of docs/counters.md mean for an answer, so that people are warned of what
// makes it wrong or coarser and not of what merely happened.
//
// Threading: pure function. A counter that is not known here, of a newer agent, counts as kBlame.
#ifndef COMMON_LOSS_COUNTERS_H_
#define COMMON_LOSS_COUNTERS_H_

#include <string_view>

namespace fleetblame {

enum class LossMeaning {
  kBytes,  // bytes or whole windows are missing, or events were not seen
  kBlame,  // bytes are all there, but who or why is missing or wrong to trust
  kNote,   // coarser detail, or harmless; where bytes are lost by it the books say so
};

LossMeaning MeaningOfLoss(std::string_view counter);

}  // namespace fleetblame

#endif  // COMMON_LOSS_COUNTERS_H_
