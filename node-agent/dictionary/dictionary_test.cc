// SPDX-License-Identifier: Apache-2.0
#include "node-agent/dictionary/dictionary.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/intent/intent.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node-agent/spool/testing/faulty_files.h"

namespace fleetblame::agent {
namespace {

v1::Intent MakeIntent(int n) {
  v1::Intent intent;
  intent.add_frames(absl::StrCat("function_", n));
  intent.add_frames("sys_write");
  intent.set_intent_id(ComputeIntentId(intent));
  return intent;
}

v1::Actor MakeActor(const std::string& comm) {
  v1::Actor actor;
  actor.set_comm(comm);
  return actor;
}

class DictionaryTest : public testing::Test {
 protected:
  DictionaryTest() {
    const char* base = std::getenv("TEST_TMPDIR");
    directory_ = absl::StrCat(base != nullptr ? base : "/tmp", "/dictionary-",
                              testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    options_.directory = directory_;
    options_.sync = false;
    options_.files = &files_;
    Open();
  }
  ~DictionaryTest() override { std::filesystem::remove_all(directory_); }

  void Open() {
    dictionary_.reset();
    auto opened = Dictionary::Open(options_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    dictionary_ = *std::move(opened);
  }

  DictionaryRefs Intents(std::vector<uint32_t> numbers) {
    DictionaryRefs refs;
    refs.dictionary_id = dictionary_->current_id();
    refs.numbers[0] = std::move(numbers);
    return refs;
  }

  std::string Path(uint64_t id) const { return directory_ + "/" + DefinitionFile::Name(id); }

  std::string directory_;
  FaultyFiles files_;
  DictionaryOptions options_;
  std::unique_ptr<Dictionary> dictionary_;
};

TEST_F(DictionaryTest, TheSameThingHasOneNumber) {
  const uint32_t one = dictionary_->Number(MakeIntent(1));
  const uint32_t two = dictionary_->Number(MakeIntent(2));
  EXPECT_NE(one, 0u);
  EXPECT_NE(one, two);
  EXPECT_EQ(dictionary_->Number(MakeIntent(1)), one);
  // Kinds count apart.
  EXPECT_EQ(dictionary_->Number(MakeActor("bash")), 1u);
}

TEST_F(DictionaryTest, VariantsOfOneIntentShareItsNumber) {
  v1::Intent other = MakeIntent(1);
  other.add_variants()->add_frames()->set_offset(7);
  EXPECT_EQ(dictionary_->Number(MakeIntent(1)), dictionary_->Number(other));
}

TEST_F(DictionaryTest, DefinesWhatIsNotAcknowledged) {
  const uint32_t one = dictionary_->Number(MakeIntent(1));
  const uint32_t two = dictionary_->Number(MakeIntent(2));
  dictionary_->SetEpoch(1);
  EXPECT_EQ(dictionary_->Define(Intents({one, two}), false).intents().size(), 2u);
  dictionary_->Acknowledge(Intents({one}));
  const v1::Definitions rest = dictionary_->Define(Intents({one, two}), false);
  ASSERT_EQ(rest.intents().size(), 1u);
  EXPECT_EQ(rest.intents().at(two).frames(0), "function_2");
  // Asked for by name it is given anyway.
  EXPECT_EQ(dictionary_->Define(Intents({one}), true).intents().size(), 1u);
}

TEST_F(DictionaryTest, AnotherEpochForgetsAcknowledgements) {
  const uint32_t one = dictionary_->Number(MakeIntent(1));
  dictionary_->SetEpoch(1);
  dictionary_->Acknowledge(Intents({one}));
  dictionary_->SetEpoch(1);
  EXPECT_EQ(dictionary_->Define(Intents({one}), false).intents().size(), 0u);
  dictionary_->SetEpoch(2);
  EXPECT_EQ(dictionary_->Define(Intents({one}), false).intents().size(), 1u);
}

TEST_F(DictionaryTest, AnEarlierRunsDefinitionsStayReadable) {
  const uint64_t id = dictionary_->current_id();
  DictionaryRefs refs = Intents({dictionary_->Number(MakeIntent(1))});
  refs.numbers[1] = {dictionary_->Number(MakeActor("bash"))};
  ASSERT_TRUE(dictionary_->Persist().ok());
  Open();
  EXPECT_NE(dictionary_->current_id(), id);
  const v1::Definitions definitions = dictionary_->Define(refs, false);
  EXPECT_EQ(definitions.dictionary_id(), id);
  EXPECT_EQ(definitions.intents().at(1).frames(0), "function_1");
  EXPECT_EQ(definitions.actors().at(1).comm(), "bash");
  // Numbers of the new dictionary begin anew.
  EXPECT_EQ(dictionary_->Number(MakeIntent(5)), 1u);
}

TEST_F(DictionaryTest, RetainRemovesWhatNothingUses) {
  const uint64_t first = dictionary_->current_id();
  dictionary_->Number(MakeIntent(1));
  ASSERT_TRUE(dictionary_->Persist().ok());
  Open();
  dictionary_->Retain({first});
  EXPECT_TRUE(std::filesystem::exists(Path(first)));
  dictionary_->Retain({});
  EXPECT_FALSE(std::filesystem::exists(Path(first)));
  EXPECT_EQ(dictionary_->stats().dictionaries, 1u);
}

TEST_F(DictionaryTest, ANewDictionaryBeginsWhenItIsFull) {
  options_.max_intents = 10;
  Open();
  for (int n = 0; n < 10; ++n) dictionary_->Number(MakeIntent(n));
  EXPECT_FALSE(dictionary_->full());
  dictionary_->Number(MakeIntent(10));
  EXPECT_TRUE(dictionary_->full());
  const DictionaryRefs old = Intents({11});
  dictionary_->NewDictionary();
  EXPECT_FALSE(dictionary_->full());
  EXPECT_EQ(dictionary_->Number(MakeIntent(99)), 1u);
  // Batches that wait in the spool still find their definitions.
  EXPECT_EQ(dictionary_->Define(old, false).intents().at(11).frames(0), "function_10");
}

TEST_F(DictionaryTest, WhatTheDiskDoesNotTakeIsKeptAndWrittenLater) {
  const uint64_t id = dictionary_->current_id();
  DictionaryRefs refs = Intents({dictionary_->Number(MakeIntent(1))});
  files_.room = 30;
  EXPECT_FALSE(dictionary_->Persist().ok());
  EXPECT_EQ(dictionary_->Define(refs, false).intents().at(1).frames(0), "function_1");
  files_.room = FaultyFiles::kNoLimit;
  refs.numbers[0].push_back(dictionary_->Number(MakeIntent(2)));
  ASSERT_TRUE(dictionary_->Persist().ok());
  Open();
  refs.dictionary_id = id;
  const v1::Definitions definitions = dictionary_->Define(refs, false);
  EXPECT_EQ(definitions.intents().at(1).frames(0), "function_1");
  EXPECT_EQ(definitions.intents().at(2).frames(0), "function_2");
}

TEST_F(DictionaryTest, ATornTailCostsOnlyItself) {
  const uint64_t id = dictionary_->current_id();
  for (int n = 1; n <= 3; ++n) {
    dictionary_->Number(MakeIntent(n));
    ASSERT_TRUE(dictionary_->Persist().ok());
  }
  dictionary_.reset();
  std::stringstream bytes;
  bytes << std::ifstream(Path(id), std::ios::binary).rdbuf();
  const std::string whole = bytes.str();
  for (size_t length = 0; length < whole.size(); length += 7) {
    SCOPED_TRACE(length);
    std::filesystem::resize_file(Path(id), 0);
    std::ofstream(Path(id), std::ios::binary) << whole.substr(0, length);
    auto file = DefinitionFile::Load(files_, directory_, id);
    ASSERT_TRUE(file.ok());
    const uint32_t known = static_cast<uint32_t>(length * 3 / whole.size());
    for (uint32_t n = 1; n <= known; ++n) {
      EXPECT_TRUE((*file)->Read(DefinitionKind::kIntent, n).has_value()) << n;
    }
    EXPECT_FALSE((*file)->Read(DefinitionKind::kIntent, known + 1).has_value());
  }
}

TEST_F(DictionaryTest, ALostDefinitionIsDefinedAsUnknown) {
  DictionaryRefs refs;
  refs.dictionary_id = 12345;  // no such file
  refs.numbers = {std::vector<uint32_t>{3}, {4}, {5}, {6}};
  const v1::Definitions definitions = dictionary_->Define(refs, false);
  EXPECT_EQ(definitions.intents().at(3).intent_id().size(), 16u);
  EXPECT_EQ(ComputeIntentId(definitions.intents().at(3)), definitions.intents().at(3).intent_id());
  EXPECT_EQ(definitions.actors().at(4).comm(), "?");
  EXPECT_EQ(definitions.devices().at(5).name(), "?");
  EXPECT_TRUE(definitions.files().contains(6));
  EXPECT_EQ(dictionary_->stats().lost_definitions, 4u);
}

TEST_F(DictionaryTest, DamageWhileRunningIsNoticed) {
  const uint32_t one = dictionary_->Number(MakeIntent(1));
  ASSERT_TRUE(dictionary_->Persist().ok());
  {
    std::fstream file(Path(dictionary_->current_id()),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(60);
    file << "xxxx";
  }
  EXPECT_FALSE(dictionary_->Intent(dictionary_->current_id(), one).has_value());
}

}  // namespace
}  // namespace fleetblame::agent
