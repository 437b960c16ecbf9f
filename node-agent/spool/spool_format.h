// SPDX-License-Identifier: Apache-2.0
//
// Bytes of a spool segment; docs/spool-format.md is the same in prose. A segment is one file
// header followed by frames; both carry checksums (CRC-32 of zlib) over themselves, so that a
// reader can tell a torn tail from data and can find the next good frame after damage.
//
// Everything is little endian. Pure functions.
#ifndef NODE_AGENT_SPOOL_SPOOL_FORMAT_H_
#define NODE_AGENT_SPOOL_SPOOL_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace fleetblame::agent {

inline constexpr uint32_t kSpoolFormatVersion = 1;
inline constexpr size_t kSegmentHeaderBytes = 64;
inline constexpr size_t kFrameHeaderBytes = 48;
// No frame is larger; a length beyond it is damage.
inline constexpr uint32_t kMaxFramePayloadBytes = 64u << 20;

struct SegmentHeader {
  uint64_t spool_epoch = 0;
  // Order of creation. A segment takes the place of whatever older ones hold in its range.
  uint64_t generation = 0;
  uint64_t first_seq = 0;
  uint64_t last_seq = 0;      // 0 = open: everything from first_seq on
  uint32_t record_count = 0;  // of a closed one
  uint32_t coarsening = 0;    // how often neighbouring windows were merged
};

struct FrameHeader {
  uint32_t payload_bytes = 0;
  uint64_t seq = 0;
  uint64_t dictionary_id = 0;
  uint64_t start_unix_ns = 0;  // of the window
  uint64_t end_unix_ns = 0;
  uint32_t payload_crc = 0;
};

uint32_t Checksum(std::string_view data);

std::string EncodeSegmentHeader(const SegmentHeader& header);
// DATA_LOSS when damaged, FAILED_PRECONDITION when a newer agent wrote it.
absl::StatusOr<SegmentHeader> DecodeSegmentHeader(std::string_view bytes);

// A whole frame; fills payload_bytes and payload_crc itself.
std::string EncodeFrame(FrameHeader header, std::string_view payload);
// nullopt unless `bytes` begins with a sound frame header.
std::optional<FrameHeader> DecodeFrameHeader(std::string_view bytes);

// Where the next sound frame header begins at or after `from`; npos when there is none.
size_t FindFrame(std::string_view bytes, size_t from);

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_SPOOL_SPOOL_FORMAT_H_
