// SPDX-License-Identifier: Apache-2.0
//
// What a ground-truth case came to: a line for people, and bytes in the test's XML for programs
// (tests/vm/report.py reads both).
//
// Not thread-safe; for the body of a gtest case. Sizes are bytes.
#ifndef TESTS_GROUNDTRUTH_FIGURES_H_
#define TESTS_GROUNDTRUTH_FIGURES_H_

#include <cstdint>
#include <map>
#include <string>

#include "node-agent/tracer/tracer.h"

namespace fleetblame::testing {

struct Figures {
  uint64_t data = 0;  // that the writers brought to the disk
  uint64_t data_right = 0;
  uint64_t all = 0;  // that the disks moved
  uint64_t all_right = 0;
  uint64_t wrong = 0;  // called exact, of nobody who had a part in it
  uint64_t lost = 0;
  std::map<agent::Confidence, uint64_t> by_confidence;  // of `all`
};

// Prints the line of case `name` ("ext4/direct") and keeps the figures as properties of the running
// test. Shares are those of `figures` unless a caller that judges more finely gives its own.
void TellFigures(const std::string& name, const Figures& figures);
void TellFigures(const std::string& name, const Figures& figures, double data_share,
                 double all_share);

}  // namespace fleetblame::testing

#endif  // TESTS_GROUNDTRUTH_FIGURES_H_
