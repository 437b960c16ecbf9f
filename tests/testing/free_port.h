// SPDX-License-Identifier: Apache-2.0
//
// Threading: pure function.
#ifndef TESTS_TESTING_FREE_PORT_H_
#define TESTS_TESTING_FREE_PORT_H_

namespace fleetblame::testing {

// A port of 127.0.0.1 that was free a moment ago; 0 when there is none.
int FreePort();

}  // namespace fleetblame::testing

#endif  // TESTS_TESTING_FREE_PORT_H_
