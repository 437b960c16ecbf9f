// SPDX-License-Identifier: Apache-2.0
//
// The kernel side and the rest of the project agree on what both of them write down.
#include <gtest/gtest.h>

#include <cerrno>

#include "bpf/fleetblame_abi.h"
#include "common/histogram.h"
#include "node-agent/tracer/bpf/rwbs.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::agent {
namespace {

static_assert(FB_HIST_FIRST_OCTAVE == kHistogramFirstOctave);
static_assert(FB_HIST_OCTAVES == kHistogramOctaves);
static_assert(FB_HIST_SUB_BUCKETS == kHistogramSubBuckets);
static_assert(FB_HIST_BUCKETS == kHistogramBuckets);
static_assert(FB_OP_READ == static_cast<int>(Operation::kRead));
static_assert(FB_OP_WRITE == static_cast<int>(Operation::kWrite));
static_assert(FB_OP_DISCARD == static_cast<int>(Operation::kDiscard));
static_assert(FB_OP_WRITE_ZEROES == static_cast<int>(Operation::kWriteZeroes));
static_assert(FB_OP_FLUSH == static_cast<int>(Operation::kFlush));
static_assert(FB_OP_SECURE_ERASE == static_cast<int>(Operation::kSecureErase));
static_assert(FB_OP_OTHER == static_cast<int>(Operation::kOther));
static_assert(FB_CONF_EXACT == static_cast<int>(Confidence::kExact));
static_assert(FB_CONF_INODE == static_cast<int>(Confidence::kInode));
static_assert(FB_CONF_JOURNAL == static_cast<int>(Confidence::kJournal));
static_assert(FB_CONF_CGROUP == static_cast<int>(Confidence::kCgroup));
static_assert(FB_CONF_ISSUER == static_cast<int>(Confidence::kIssuer));
static_assert(FB_CONF_LOST == static_cast<int>(Confidence::kLost));
// Weights of samples stand above it.
static_assert(FB_CONF_LOST <= FB_CONFIDENCE_MASK && FB_CONFIDENCE_MASK < 1 << FB_WEIGHT_SHIFT);
static_assert(FB_STACK_NONE == kNoStack && FB_STACK_LOST == kLostStack);
// Keys are compared byte by byte: no padding.
static_assert(sizeof(fb_row_key) == 32);
static_assert(sizeof(fb_range_key) == 16);
static_assert(sizeof(fb_page_key) == 24);
static_assert(sizeof(fb_actor_key) == 32);

TEST(Rwbs, LettersAsInBlktrace) {
  EXPECT_EQ(RwbsText(FB_OP_WRITE, 1u << 11), "WS");
  EXPECT_EQ(RwbsText(FB_OP_WRITE, 1u << 17 | 1u << 18 | 1u << 11 | 1u << 12), "FWFSM");
  EXPECT_EQ(RwbsText(FB_OP_READ, 1u << 19), "RA");
  EXPECT_EQ(RwbsText(FB_OP_FLUSH, 1u << 18), "F");
  EXPECT_EQ(RwbsText(FB_OP_SECURE_ERASE, 0), "DE");
}

TEST(Rwbs, ErrorsArePositive) {
  EXPECT_EQ(BlockErrorNumber(0), 0);
  EXPECT_EQ(BlockErrorNumber(3), ENOSPC);
  EXPECT_EQ(BlockErrorNumber(10), EIO);
}

TEST(DevicePlace, StaysInTheTable) {
  for (fb_u32 dev = 0; dev < 1u << 20; dev += 4099) {
    for (fb_u32 probe = 0; probe < FB_DEVICE_PROBES; ++probe) {
      ASSERT_LT(fb_device_place(dev << 4, probe), FB_DEVICE_PLACES);
    }
  }
}

}  // namespace
}  // namespace fleetblame::agent
