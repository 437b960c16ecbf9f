// SPDX-License-Identifier: Apache-2.0
//
// Numbers for people: "2.9 GiB", "18 ms", "5,812". Three significant digits at most, never a
// unit that the reader must convert. Pure functions.
#ifndef CLI_UNITS_H_
#define CLI_UNITS_H_

#include <cstdint>
#include <string>

namespace fleetblame::cli {

// Binary units: "0 B", "812 B", "1.5 KiB", "611 MiB".
std::string HumanBytes(double bytes);
// "0.9 µs"; below a microsecond "<1 µs", zero "0".
std::string HumanNs(uint64_t ns);
// With thousands separators.
std::string HumanCount(uint64_t count);
// "96.2 %"; "-" when `whole` is 0.
std::string HumanPercent(double part, double whole);
// "10 min", "2 h 30 min", "45 s"
std::string HumanSpan(uint64_t ns);
// UTC, "2026-03-01 14:20:30"
std::string HumanTime(uint64_t unix_ns);

}  // namespace fleetblame::cli

#endif  // CLI_UNITS_H_
