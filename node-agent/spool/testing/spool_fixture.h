// SPDX-License-Identifier: Apache-2.0
//
// What the spool's tests share: a directory, batches whose contents tell what they are, and ways to
// read everything back.
#ifndef NODE_AGENT_SPOOL_TESTING_SPOOL_FIXTURE_H_
#define NODE_AGENT_SPOOL_TESTING_SPOOL_FIXTURE_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "node-agent/spool/spool.h"
#include "node-agent/spool/testing/faulty_files.h"

namespace fleetblame::agent {

class SpoolFixture : public testing::Test {
 protected:
  SpoolFixture() {
    const char* base = std::getenv("TEST_TMPDIR");
    directory_ = absl::StrCat(base != nullptr ? base : "/tmp", "/spool-",
                              testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    options_.directory = directory_;
    options_.boot_id = "boot-1";
    options_.sync = false;
    options_.files = &files_;
    options_.max_bytes = 1 << 20;
  }
  ~SpoolFixture() override { std::filesystem::remove_all(directory_); }

  void Open() {
    spool_.reset();
    auto spool = Spool::Open(options_);
    ASSERT_TRUE(spool.ok()) << spool.status();
    spool_ = *std::move(spool);
  }

  // Window number n, from 1, lasts a second; `padding` makes it larger.
  static v1::Batch Window(uint64_t n, size_t padding = 0) {
    v1::Batch batch;
    batch.set_dictionary_id(7);
    batch.mutable_window()->set_start_boot_ns(n * 1'000'000'000);
    batch.mutable_window()->set_end_boot_ns((n + 1) * 1'000'000'000);
    batch.mutable_window()->set_realtime_offset_ns(1'700'000'000'000'000'000);
    batch.mutable_window()->set_boot_id("boot-1");
    v1::LossCounter* mark = batch.add_losses();
    mark->set_name(absl::StrCat("window-", n, std::string(padding, '.')));
    mark->set_delta(1);
    return batch;
  }

  void Append(uint64_t n, size_t padding = 0) {
    std::vector<v1::Batch> batches;
    batches.push_back(Window(n, padding));
    spool_->Append(std::move(batches));
  }

  // Which windows a batch holds, "gap:<cause>:<batches>" for gaps, "" for nothing.
  static std::string Describe(const v1::Batch& batch) {
    std::vector<std::string> parts;
    for (const v1::LossCounter& loss : batch.losses()) {
      std::string name = loss.name();
      name.erase(name.find_last_not_of('.') + 1);
      parts.push_back(loss.delta() == 1 ? name : absl::StrCat(name, "*", loss.delta()));
    }
    for (const v1::Gap& gap : batch.gaps()) {
      parts.push_back(absl::StrCat("gap:", gap.cause(), ":", gap.batches()));
    }
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : " ") + part;
    return text;
  }

  std::string Read(uint64_t seq) {
    auto batch = spool_->Read(seq);
    if (!batch.ok()) return std::string(batch.status().message());
    EXPECT_EQ(batch->seq(), seq);
    EXPECT_EQ(batch->spool_epoch(), spool_->epoch());
    EXPECT_LT(batch->window().start_boot_ns(), batch->window().end_boot_ns());
    return Describe(*batch);
  }

  // Everything in the spool, from first to last.
  std::vector<std::pair<uint64_t, std::string>> ReadAll() {
    uint64_t first = 0;
    uint64_t last = 0;
    spool_->Range(&first, &last);
    std::vector<std::pair<uint64_t, std::string>> all;
    for (uint64_t seq = first; last != 0 && seq <= last; ++seq) all.emplace_back(seq, Read(seq));
    return all;
  }

  std::vector<std::string> SegmentFiles() const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      if (entry.path().extension() == ".seg") paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  static std::string Slurp(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static void Overwrite(const std::string& path, const std::string& bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << bytes;
  }
  void RemoveState() { std::filesystem::remove(directory_ + "/state"); }

  std::string directory_;
  FaultyFiles files_;
  SpoolOptions options_;
  std::unique_ptr<Spool> spool_;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_SPOOL_TESTING_SPOOL_FIXTURE_H_
