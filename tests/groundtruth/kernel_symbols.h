// SPDX-License-Identifier: Apache-2.0
//
// Names for kernel addresses, by the plainest means, so that the ground truth does not lean on the
// code it judges: a sorted copy of a kallsyms table.
//
// Immutable after Read; safe from any thread.
#ifndef TESTS_GROUNDTRUTH_KERNEL_SYMBOLS_H_
#define TESTS_GROUNDTRUTH_KERNEL_SYMBOLS_H_

#include <cstdint>
#include <istream>
#include <map>
#include <string>

namespace fleetblame::testing {

class KernelSymbols {
 public:
  static KernelSymbols Read(std::istream& kallsyms);

  // Name of the function that `address` lies in, "?" when it lies before the first one.
  const std::string& Name(uint64_t address) const;

  bool empty() const { return names_.empty(); }

 private:
  std::map<uint64_t, std::string> names_;
};

}  // namespace fleetblame::testing

#endif  // TESTS_GROUNDTRUTH_KERNEL_SYMBOLS_H_
