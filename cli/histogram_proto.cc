// SPDX-License-Identifier: Apache-2.0
#include "cli/histogram_proto.h"

#include <algorithm>

namespace fleetblame::cli {

SparseHistogram ToSparse(const v1::Histogram& histogram) {
  SparseHistogram sparse;
  int n = std::min(histogram.buckets_size(), histogram.counts_size());
  for (int i = 0; i < n; ++i) {
    if (histogram.buckets(i) >= static_cast<uint32_t>(kHistogramBuckets)) continue;
    sparse.Add(static_cast<int>(histogram.buckets(i)), histogram.counts(i));
  }
  return sparse;
}

}  // namespace fleetblame::cli
