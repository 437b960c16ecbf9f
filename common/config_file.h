// SPDX-License-Identifier: Apache-2.0
//
// Whether a path may be read as a configuration file. The command-line library reads whatever it is
// given to its end: a device such as /dev/zero, or a pipe that nobody writes to, has none.
//
// Threading: pure function of the file system.
#ifndef COMMON_CONFIG_FILE_H_
#define COMMON_CONFIG_FILE_H_

#include <string>

namespace fleetblame {

// Larger files are no configuration of ours.
inline constexpr unsigned kMaxConfigFileBytes = 1 << 20;

// What is wrong with the file, or nothing. In the form of the library's validators.
std::string CheckConfigFile(const std::string& path);

}  // namespace fleetblame

#endif  // COMMON_CONFIG_FILE_H_
