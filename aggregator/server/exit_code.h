// SPDX-License-Identifier: Apache-2.0
//
// How the aggregator ends. Documented in docs/aggregator.md; supervisors and scripts rely on them.
#ifndef AGGREGATOR_SERVER_EXIT_CODE_H_
#define AGGREGATOR_SERVER_EXIT_CODE_H_

namespace fleetblame::aggregator {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,  // anything else
  kExitUsage = 2,    // flags or configuration file
  kExitStore = 3,    // cannot be opened: in use, damaged, newer format, disk
  kExitListen = 4,   // address in use or not of this machine
  kExitTls = 5,      // certificate, key or CA unreadable or unusable
};

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_SERVER_EXIT_CODE_H_
