// SPDX-License-Identifier: Apache-2.0
//
// Numbers of few bytes where they are small: seven bits a byte, low ones first.
//
// Threading: pure functions.
#ifndef AGGREGATOR_STORE_VARINT_H_
#define AGGREGATOR_STORE_VARINT_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace fleetblame::aggregator {

inline void PutVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

// Takes a number from the front of `*in`; false when there is none.
inline bool TakeVarint(std::string_view* in, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !in->empty(); shift += 7) {
    auto byte = static_cast<uint8_t>(in->front());
    in->remove_prefix(1);
    *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_VARINT_H_
