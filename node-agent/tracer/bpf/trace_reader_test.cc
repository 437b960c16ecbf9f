// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/trace_reader.h"

#include <gtest/gtest.h>

namespace fleetblame::agent {
namespace {

TEST(TraceReaderTest, ARecordSaysWhatTheKernelSideWrote) {
  fb_trace raw{};
  raw.complete_ns = 11;
  raw.sector = 12;
  raw.bytes = 4096;
  raw.other_bytes = 512;
  raw.dev = 259 << 20 | 3;
  raw.op = FB_OP_WRITE;
  raw.confidence = FB_CONF_JOURNAL;
  raw.reason = 4;
  raw.dirtier_actor = 6 + (1u << FB_ID_INDEX_BITS);
  raw.issuer_actor = 9;
  raw.dirtier_stack = 21;
  raw.issuer_stack = 22;
  raw.file = 23;
  const TraceRecord record = MakeTraceRecord(raw, /*reasons=*/5);
  EXPECT_EQ(record.complete_boot_ns, 11u);
  EXPECT_EQ(record.sector, 12u);
  EXPECT_EQ(record.bytes, 4096u);
  EXPECT_EQ(record.other_bytes, 512u);
  EXPECT_EQ(record.device, (DeviceNumber{259, 3}));
  EXPECT_EQ(record.operation, Operation::kWrite);
  EXPECT_EQ(record.confidence, Confidence::kJournal);
  EXPECT_EQ(record.reason, 4);
  EXPECT_EQ(record.dirtier_actor, 6u);
  EXPECT_EQ(record.issuer_actor, 9u);
  EXPECT_EQ(record.dirtier_stack, 21u);
  EXPECT_EQ(record.issuer_stack, 22u);
  EXPECT_EQ(record.file, 23u);
  EXPECT_EQ(record.error, 0);
  EXPECT_EQ(MakeTraceRecord(raw, /*reasons=*/4).reason, 0);
}

}  // namespace
}  // namespace fleetblame::agent
