// SPDX-License-Identifier: Apache-2.0
#include "tests/groundtruth/test_main.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/groundtruth/scratch_disk.h"

namespace fleetblame::testing {

int RunTestsWithWriter(int argc, char** argv, std::string* writer_program) {
  const std::string flag = "--writer=";
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind(flag, 0) == 0) *writer_program = argument.substr(flag.size());
  }
  if (writer_program->empty()) {
    std::fprintf(stderr, "give --writer=PATH, the path of tests/groundtruth/writer\n");
    return 2;
  }
  // Without the means for scratch disks the tests skip themselves and say why.
  if (ScratchDisksUnavailable().empty()) {
    if (absl::Status status = EnterPrivateMounts(); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return 1;
    }
  }
  return RUN_ALL_TESTS();
}

}  // namespace fleetblame::testing
