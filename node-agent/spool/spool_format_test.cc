// SPDX-License-Identifier: Apache-2.0
#include "node-agent/spool/spool_format.h"

#include "gtest/gtest.h"

namespace fleetblame::agent {
namespace {

SegmentHeader SomeHeader() {
  SegmentHeader header;
  header.spool_epoch = 0x0123456789abcdef;
  header.generation = 42;
  header.first_seq = 1000;
  header.last_seq = 2000;
  header.record_count = 17;
  header.coarsening = 3;
  return header;
}

TEST(SpoolFormatTest, SegmentHeaderRoundTrip) {
  const std::string bytes = EncodeSegmentHeader(SomeHeader());
  ASSERT_EQ(bytes.size(), kSegmentHeaderBytes);
  auto header = DecodeSegmentHeader(bytes);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->spool_epoch, 0x0123456789abcdefu);
  EXPECT_EQ(header->generation, 42u);
  EXPECT_EQ(header->first_seq, 1000u);
  EXPECT_EQ(header->last_seq, 2000u);
  EXPECT_EQ(header->record_count, 17u);
  EXPECT_EQ(header->coarsening, 3u);
}

TEST(SpoolFormatTest, EveryBitFlipInASegmentHeaderIsNoticed) {
  const std::string bytes = EncodeSegmentHeader(SomeHeader());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(DecodeSegmentHeader(damaged).ok()) << "bit " << bit;
  }
}

TEST(SpoolFormatTest, NewerFormatIsRefusedWithAWayOut) {
  std::string bytes = EncodeSegmentHeader(SomeHeader());
  bytes[8] = 2;  // the version
  bytes.resize(kSegmentHeaderBytes - 4);
  const uint32_t crc = Checksum(bytes);
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(crc >> (8 * i)));
  const auto header = DecodeSegmentHeader(bytes);
  EXPECT_EQ(header.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(header.status().message().find("install the newer agent"), std::string::npos);
}

TEST(SpoolFormatTest, FrameRoundTrip) {
  FrameHeader header;
  header.seq = 5;
  header.dictionary_id = 6;
  header.start_unix_ns = 7;
  header.end_unix_ns = 8;
  const std::string bytes = EncodeFrame(header, "payload");
  const auto decoded = DecodeFrameHeader(bytes);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->seq, 5u);
  EXPECT_EQ(decoded->dictionary_id, 6u);
  EXPECT_EQ(decoded->start_unix_ns, 7u);
  EXPECT_EQ(decoded->end_unix_ns, 8u);
  EXPECT_EQ(decoded->payload_bytes, 7u);
  EXPECT_EQ(decoded->payload_crc, Checksum("payload"));
  EXPECT_EQ(bytes.substr(kFrameHeaderBytes), "payload");
}

TEST(SpoolFormatTest, EveryBitFlipInAFrameHeaderIsNoticed) {
  const std::string bytes = EncodeFrame(FrameHeader(), "x");
  for (size_t bit = 0; bit < 8 * kFrameHeaderBytes; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(DecodeFrameHeader(damaged).has_value()) << "bit " << bit;
  }
}

TEST(SpoolFormatTest, FindsTheNextFrameBehindGarbage) {
  const std::string frame = EncodeFrame(FrameHeader(), "x");
  EXPECT_EQ(FindFrame("fbF1 looks like one" + frame, 0), 19u);
  EXPECT_EQ(FindFrame(frame, 1), std::string::npos);
}

// The layout is on disks out there: a change of it is a new version.
TEST(SpoolFormatTest, LayoutIsPinned) {
  FrameHeader header;
  header.seq = 0x0102030405060708;
  const std::string bytes = EncodeFrame(header, "abc");
  EXPECT_EQ(bytes.substr(0, 4), "fbF1");
  EXPECT_EQ(bytes.substr(4, 4), std::string("\x03\0\0\0", 4));
  EXPECT_EQ(bytes.substr(8, 8), "\x08\x07\x06\x05\x04\x03\x02\x01");
  EXPECT_EQ(EncodeSegmentHeader(SegmentHeader()).substr(0, 8), "FBSPOOL\n");
}

}  // namespace
}  // namespace fleetblame::agent
