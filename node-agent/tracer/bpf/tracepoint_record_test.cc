// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/tracepoint_record.h"

#include <gtest/gtest.h>

#include <sstream>

namespace fleetblame::agent {
namespace {

TEST(TracepointRecordTest, FieldsAreFoundByName) {
  std::istringstream format(
      "name: some_event\n"
      "ID: 741\n"
      "format:\n"
      "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
      "\n"
      "\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n"
      "\tfield:int transaction;\toffset:16;\tsize:4;\tsigned:1;\n"
      "\tfield:char name[16];\toffset:20;\tsize:16;\tsigned:1;\n"
      "\n"
      "print fmt: \"dev %d; offset: 7;\", REC->dev\n");
  const auto offsets = ParseRecord(format);
  const std::map<std::string, uint32_t> expected = {
      {"common_type", 0}, {"dev", 8}, {"transaction", 16}, {"name", 20}};
  EXPECT_EQ(offsets, expected);
}

TEST(TracepointRecordTest, NoFileHasNoFields) {
  EXPECT_TRUE(TracepointRecord("no_such_system", "no_such_event").empty());
}

}  // namespace
}  // namespace fleetblame::agent
