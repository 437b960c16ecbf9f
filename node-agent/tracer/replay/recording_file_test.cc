// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/replay/recording_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"

namespace fleetblame::agent {
namespace {

std::string TempPath(const std::string& name) {
  return std::string(::testing::TempDir()) + "/" + name;
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void WriteFile(const std::string& path, const std::string& data) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << data;
}

const std::vector<std::string>& Payloads() {
  static const auto* const list =
      new std::vector<std::string>{"first", std::string(5000, 'x'), "", "fourth"};
  return *list;
}

std::string MakeFile(const std::string& name) {
  std::string path = TempPath(name);
  auto writer = RecordingWriter::Create(path);
  EXPECT_TRUE(writer.ok()) << writer.status();
  for (const std::string& p : Payloads()) {
    EXPECT_TRUE((*writer)->Append(FrameType::kSnapshot, p).ok());
  }
  EXPECT_TRUE((*writer)->Sync().ok());
  EXPECT_EQ((*writer)->bytes(), std::filesystem::file_size(path));
  return path;
}

// Reads until the first error and returns how many frames were good.
size_t CountGood(const std::string& path, absl::Status* end) {
  auto reader = RecordingReader::Open(path);
  if (!reader.ok()) {
    *end = reader.status();
    return 0;
  }
  RecordingFrame frame;
  size_t n = 0;
  while ((*end = (*reader)->Next(&frame)).ok()) {
    EXPECT_LT(n, Payloads().size());
    EXPECT_EQ(frame.payload, Payloads()[n]);
    ++n;
  }
  return n;
}

TEST(RecordingFile, GivesBackWhatWasWritten) {
  absl::Status end;
  EXPECT_EQ(CountGood(MakeFile("whole"), &end), Payloads().size());
  EXPECT_TRUE(absl::IsOutOfRange(end)) << end;
}

TEST(RecordingFile, IsForItsOwnerOnly) {
  struct stat info {};
  ASSERT_EQ(stat(MakeFile("mode").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(RecordingFile, IsReadableUpToATearAnywhere) {
  std::string path = MakeFile("torn");
  std::string whole = ReadFile(path);
  size_t most = 0;
  for (size_t size = 0; size < whole.size(); ++size) {
    WriteFile(path, whole.substr(0, size));
    absl::Status end;
    size_t good = CountGood(path, &end);
    EXPECT_GE(good, most) << size;
    most = good;
    EXPECT_FALSE(end.ok());
    if (size < 8) {
      EXPECT_TRUE(absl::IsInvalidArgument(end)) << size << end;
    } else {
      EXPECT_TRUE(absl::IsDataLoss(end) || absl::IsOutOfRange(end)) << size << end;
    }
  }
  EXPECT_EQ(most, Payloads().size() - 1);
}

TEST(RecordingFile, NoticesEveryFlippedBit) {
  std::string path = MakeFile("flipped");
  std::string whole = ReadFile(path);
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string bad = whole;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    WriteFile(path, bad);
    absl::Status end;
    EXPECT_LT(CountGood(path, &end), Payloads().size()) << "bit " << bit;
    EXPECT_FALSE(absl::IsOutOfRange(end)) << "bit " << bit;
  }
}

TEST(RecordingFile, SaysWhatIsWrong) {
  absl::Status status = RecordingReader::Open(TempPath("missing")).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "missing"));

  std::string path = TempPath("text");
  WriteFile(path, "hello, this is a text file and no recording");
  status = RecordingReader::Open(path).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "not a recording"));

  EXPECT_FALSE(RecordingReader::Open(::testing::TempDir()).ok());
  EXPECT_FALSE(RecordingWriter::Create(TempPath("no/such/folder/file")).ok());
}

TEST(RecordingFile, RefusesALaterFormatByName) {
  std::string path = MakeFile("later");
  std::string data = ReadFile(path);
  data[8] = static_cast<char>(kRecordingMajor + 1);
  // With its checksum set right, as a later release would.
  auto crc32 = [](std::string_view text) {
    uint32_t crc = ~0u;
    for (unsigned char c : text) {
      crc ^= c;
      for (int k = 0; k < 8; ++k) crc = (crc >> 1) ^ (0xedb88320u & (0 - (crc & 1)));
    }
    return ~crc;
  };
  uint32_t crc = crc32(std::string_view(data).substr(0, 12));
  for (int i = 0; i < 4; ++i) data[12 + static_cast<size_t>(i)] = static_cast<char>(crc >> (8 * i));
  WriteFile(path, data);
  absl::Status status = RecordingReader::Open(path).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "format 2")) << status;
}

TEST(RecordingFile, StaysBelowItsLimit) {
  std::string path = TempPath("limit");
  auto writer = RecordingWriter::Create(path);
  ASSERT_TRUE(writer.ok());
  std::mt19937_64 random(1);
  std::string noise(1000, '\0');
  absl::Status status;
  int written = 0;
  for (; written < 100; ++written) {
    for (char& c : noise) c = static_cast<char>(random());
    status = (*writer)->Append(FrameType::kTrace, noise, 20000);
    if (!status.ok()) break;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_GT(written, 10);
  EXPECT_LE(std::filesystem::file_size(path), 20000u);
}

TEST(RecordingFile, AFullDiskIsAnError) {
  auto writer = RecordingWriter::Create("/dev/full");
  if (writer.ok()) FAIL() << "writing the header to a full disk worked";
  EXPECT_TRUE(absl::StrContains(writer.status().message(), "/dev/full")) << writer.status();
}

TEST(RecordingFileFuzz, SurvivesRandomDamage) {
  std::string path = MakeFile("fuzz");
  std::string whole = ReadFile(path);
  std::mt19937_64 random(9);
  for (int round = 0; round < 3000; ++round) {
    std::string bad = whole;
    for (uint64_t n = 1 + random() % 8; n > 0; --n) {
      bad[random() % bad.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bad.resize(random() % bad.size());
    if (random() % 4 == 0) bad.append(random() % 100, static_cast<char>(random()));
    WriteFile(path, bad);
    absl::Status end;
    EXPECT_LE(CountGood(path, &end), Payloads().size());
  }
}

}  // namespace
}  // namespace fleetblame::agent
