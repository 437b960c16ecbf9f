// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/books.h"

#include "common/saturating.h"

namespace fleetblame::aggregator {

void AddCoverage(const stored::Coverage& coverage, CoverageSums* sums) {
  for (const v1::CoverageSample& sample : coverage.samples()) {
    v1::CoverageSample& sum = (*sums)[{sample.device(), sample.direction()}];
    sum.set_device(sample.device());
    sum.set_direction(sample.direction());
    sum.set_recorded_bytes(SaturatingAdd(sum.recorded_bytes(), sample.recorded_bytes()));
    sum.set_lost_bytes(SaturatingAdd(sum.lost_bytes(), sample.lost_bytes()));
    sum.set_kernel_bytes(SaturatingAdd(sum.kernel_bytes(), sample.kernel_bytes()));
    sum.set_recorded_ios(SaturatingAdd(sum.recorded_ios(), sample.recorded_ios()));
    sum.set_kernel_ios(SaturatingAdd(sum.kernel_ios(), sample.kernel_ios()));
  }
}

stored::Coverage ToStored(const CoverageSums& sums) {
  stored::Coverage out;
  for (const auto& [key, sample] : sums) *out.add_samples() = sample;
  return out;
}

void AddLosses(const stored::Losses& losses, LossSums* sums) {
  for (const v1::LossCounter& loss : losses.losses()) Grow(&(*sums)[loss.name()], loss.delta());
}

stored::Losses ToStored(const LossSums& sums) {
  stored::Losses out;
  for (const auto& [name, delta] : sums) {
    v1::LossCounter* loss = out.add_losses();
    loss->set_name(name);
    loss->set_delta(delta);
  }
  return out;
}

}  // namespace fleetblame::aggregator
