// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/host_info.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <sstream>

namespace fleetblame::agent {
namespace {

std::string Note(uint32_t type, const std::string& name, const std::string& body) {
  Elf64_Nhdr header{static_cast<uint32_t>(name.size() + 1), static_cast<uint32_t>(body.size()),
                    type};
  std::string text(reinterpret_cast<const char*>(&header), sizeof(header));
  text += name;
  text.append(4 - name.size() % 4, '\0');
  text += body;
  while (text.size() % 4 != 0) text += '\0';
  return text;
}

TEST(BuildIdFromNotes, FindsTheGnuNoteAmongOthers) {
  std::string notes = Note(1, "Xen", "abcd") + Note(NT_GNU_BUILD_ID, "GNU", "0123456789abcdefghij");
  EXPECT_EQ(BuildIdFromNotes(notes), "0123456789abcdefghij");
}

TEST(BuildIdFromNotes, CutNotesGiveNothing) {
  std::string notes = Note(NT_GNU_BUILD_ID, "GNU", "0123456789abcdefghij");
  for (size_t size = 0; size < notes.size(); ++size) {
    EXPECT_EQ(BuildIdFromNotes(notes.substr(0, size)), "") << size;
  }
}

TEST(WritebackReasons, ByValueWithoutPrefix) {
  auto reasons =
      WritebackReasons({{0, "WB_REASON_BACKGROUND"}, {2, "WB_REASON_SYNC"}, {3, "WB_REASON_MAX"}});
  EXPECT_EQ(reasons, (std::vector<std::string>{"", "background", "", "sync"}));
}

TEST(FindFunctions, EndsAtTheNextFunction) {
  std::istringstream table(
      "ffffffff81000000 T first\n"
      "ffffffff81000100 t second\n"
      "ffffffff81000100 t alias\n"
      "ffffffff81000180 D data\n"
      "ffffffff81000200 T third\t[module]\n"
      "0000000000000000 T hidden\n");
  auto found = FindFunctions(table, {"second", "third", "hidden", "data"});
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found["second"].first, 0xffffffff81000100);
  EXPECT_EQ(found["second"].last, 0xffffffff81000200);
  EXPECT_EQ(found["third"].first, 0xffffffff81000200);
}

}  // namespace
}  // namespace fleetblame::agent
