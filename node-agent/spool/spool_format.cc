// SPDX-License-Identifier: Apache-2.0
#include "node-agent/spool/spool_format.h"

#include <zlib.h>

#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace fleetblame::agent {
namespace {

constexpr std::string_view kSegmentMagic = "FBSPOOL\n";
constexpr std::string_view kFrameMagic = "fbF1";

template <typename T>
void Put(std::string& out, T value) {
  static_assert(std::is_unsigned_v<T>);
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

// Reads and steps over one integer; the caller has checked the length.
template <typename T>
T Take(std::string_view& in) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<T>(static_cast<unsigned char>(in[i])) << (8 * i));
  }
  in.remove_prefix(sizeof(T));
  return value;
}

}  // namespace

uint32_t Checksum(std::string_view data) {
  return static_cast<uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size()));
}

std::string EncodeSegmentHeader(const SegmentHeader& header) {
  std::string out(kSegmentMagic);
  Put<uint32_t>(out, kSpoolFormatVersion);
  Put<uint64_t>(out, header.spool_epoch);
  Put<uint64_t>(out, header.generation);
  Put<uint64_t>(out, header.first_seq);
  Put<uint64_t>(out, header.last_seq);
  Put<uint32_t>(out, header.record_count);
  Put<uint32_t>(out, header.coarsening);
  out.resize(kSegmentHeaderBytes - sizeof(uint32_t), '\0');
  Put<uint32_t>(out, Checksum(out));
  return out;
}

absl::StatusOr<SegmentHeader> DecodeSegmentHeader(std::string_view bytes) {
  if (bytes.size() < kSegmentHeaderBytes) return absl::DataLossError("its header is incomplete");
  bytes = bytes.substr(0, kSegmentHeaderBytes);
  if (!bytes.starts_with(kSegmentMagic)) return absl::DataLossError("it is not a spool segment");
  std::string_view tail = bytes.substr(kSegmentHeaderBytes - sizeof(uint32_t));
  if (Take<uint32_t>(tail) != Checksum(bytes.substr(0, kSegmentHeaderBytes - sizeof(uint32_t)))) {
    return absl::DataLossError("the checksum of its header is wrong");
  }
  bytes.remove_prefix(kSegmentMagic.size());
  const auto version = Take<uint32_t>(bytes);
  if (version != kSpoolFormatVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("it has format ", version, " and this agent reads format ",
                     kSpoolFormatVersion, "; install the newer agent again or move the file away"));
  }
  SegmentHeader header;
  header.spool_epoch = Take<uint64_t>(bytes);
  header.generation = Take<uint64_t>(bytes);
  header.first_seq = Take<uint64_t>(bytes);
  header.last_seq = Take<uint64_t>(bytes);
  header.record_count = Take<uint32_t>(bytes);
  header.coarsening = Take<uint32_t>(bytes);
  return header;
}

std::string EncodeFrame(FrameHeader header, std::string_view payload) {
  std::string out;
  out.reserve(kFrameHeaderBytes + payload.size());
  out.append(kFrameMagic);
  Put<uint32_t>(out, static_cast<uint32_t>(payload.size()));
  Put<uint64_t>(out, header.seq);
  Put<uint64_t>(out, header.dictionary_id);
  Put<uint64_t>(out, header.start_unix_ns);
  Put<uint64_t>(out, header.end_unix_ns);
  Put<uint32_t>(out, Checksum(payload));
  Put<uint32_t>(out, Checksum(out));
  out.append(payload);
  return out;
}

std::optional<FrameHeader> DecodeFrameHeader(std::string_view bytes) {
  if (bytes.size() < kFrameHeaderBytes) return std::nullopt;
  bytes = bytes.substr(0, kFrameHeaderBytes);
  if (!bytes.starts_with(kFrameMagic)) return std::nullopt;
  std::string_view tail = bytes.substr(kFrameHeaderBytes - sizeof(uint32_t));
  if (Take<uint32_t>(tail) != Checksum(bytes.substr(0, kFrameHeaderBytes - sizeof(uint32_t)))) {
    return std::nullopt;
  }
  bytes.remove_prefix(kFrameMagic.size());
  FrameHeader header;
  header.payload_bytes = Take<uint32_t>(bytes);
  header.seq = Take<uint64_t>(bytes);
  header.dictionary_id = Take<uint64_t>(bytes);
  header.start_unix_ns = Take<uint64_t>(bytes);
  header.end_unix_ns = Take<uint64_t>(bytes);
  header.payload_crc = Take<uint32_t>(bytes);
  if (header.payload_bytes > kMaxFramePayloadBytes) return std::nullopt;
  return header;
}

size_t FindFrame(std::string_view bytes, size_t from) {
  while ((from = bytes.find(kFrameMagic, from)) != std::string_view::npos) {
    if (DecodeFrameHeader(bytes.substr(from))) return from;
    ++from;
  }
  return std::string_view::npos;
}

}  // namespace fleetblame::agent
