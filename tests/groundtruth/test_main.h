// SPDX-License-Identifier: Apache-2.0
//
// What the main() of tests with scenarios has in common: the path of the writer program
// (--writer=PATH), and mounts that end with the process.
#ifndef TESTS_GROUNDTRUTH_TEST_MAIN_H_
#define TESTS_GROUNDTRUTH_TEST_MAIN_H_

#include <string>

namespace fleetblame::testing {

// Call after InitGoogleTest, before any thread is started. Returns the process's exit status.
int RunTestsWithWriter(int argc, char** argv, std::string* writer_program);

}  // namespace fleetblame::testing

#endif  // TESTS_GROUNDTRUTH_TEST_MAIN_H_
