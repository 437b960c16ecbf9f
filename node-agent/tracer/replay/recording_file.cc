// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/replay/recording_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace fleetblame::agent {
namespace {

// Not text (high bit, CR LF), so that a transfer that mangles text is noticed at once.
constexpr char kMagic[8] = {'\x89', 'F', 'B', 'R', 'E', 'C', '\r', '\n'};
constexpr int kCompressionLevel = 3;

template <typename T>
void AppendLittleEndian(T value, std::string* out) {
  for (size_t i = 0; i < sizeof(T); ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

template <typename T>
T ReadLittleEndian(const char* data) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<uint64_t>(static_cast<unsigned char>(data[i])) << (8 * i);
  }
  return static_cast<T>(value);
}

uint32_t Checksum(std::string_view a, std::string_view b = {}) {
  uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(a.data()), a.size());
  if (!b.empty()) crc = crc32_z(crc, reinterpret_cast<const Bytef*>(b.data()), b.size());
  return static_cast<uint32_t>(crc);
}

std::string MakeHeader() {
  std::string header(kMagic, sizeof(kMagic));
  AppendLittleEndian(kRecordingMajor, &header);
  AppendLittleEndian(kRecordingMinor, &header);
  AppendLittleEndian(Checksum(header), &header);
  return header;
}

absl::Status FileError(const char* what, const std::string& path) {
  int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat(what, " ", path));
}

absl::Status DamagedAt(const std::string& path, uint64_t offset, const char* how) {
  return absl::DataLossError(absl::StrCat(path, ": ", how, " at byte ", offset));
}

absl::Status CheckHeader(const std::string& header, const std::string& path) {
  if (header.size() < sizeof(kMagic) || std::memcmp(header.data(), kMagic, sizeof(kMagic)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a recording; fleetblame-agent --record makes one"));
  }
  if (header.size() < kRecordingHeaderBytes ||
      ReadLittleEndian<uint32_t>(header.data() + 12) !=
          Checksum(std::string_view(header).substr(0, 12))) {
    return absl::DataLossError(
        absl::StrCat(path, ": the header of the recording is damaged; copy the file again"));
  }
  auto major = ReadLittleEndian<uint16_t>(header.data() + 8);
  if (major != kRecordingMajor) {
    return absl::UnimplementedError(
        absl::StrCat(path, " has recording format ", major, ", this program reads format ",
                     kRecordingMajor, "; use the release that made the recording, or a later one"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RecordingWriter>> RecordingWriter::Create(const std::string& path) {
  int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return FileError("create recording", path);
  std::unique_ptr<RecordingWriter> writer(new RecordingWriter(fd, path));
  absl::Status status = writer->Write(MakeHeader());
  if (!status.ok()) return status;
  return writer;
}

RecordingWriter::~RecordingWriter() { close(fd_); }

absl::Status RecordingWriter::Write(std::string_view data) {
  const uint64_t begin = bytes_;
  while (!data.empty()) {
    ssize_t n = write(fd_, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (n == 0) errno = ENOSPC;
      absl::Status status = FileError("write recording", path_);
      // A torn frame would be found by its checksum; without it the end is clean. When even this
      // fails there is nothing better to do.
      if (ftruncate(fd_, static_cast<off_t>(begin)) == 0) {
        lseek(fd_, static_cast<off_t>(begin), SEEK_SET);
      }
      bytes_ = begin;
      return status;
    }
    bytes_ += static_cast<uint64_t>(n);
    data.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status RecordingWriter::Append(FrameType type, std::string_view payload, uint64_t max_bytes) {
  if (payload.size() > kMaxFrameBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("recording ", path_, ": a frame of ", payload.size(), " bytes is too large"));
  }
  std::string stored(ZSTD_compressBound(payload.size()), '\0');
  size_t size = ZSTD_compress(stored.data(), stored.size(), payload.data(), payload.size(),
                              kCompressionLevel);
  if (ZSTD_isError(size)) {
    return absl::InternalError(
        absl::StrCat("recording ", path_, ": compression failed: ", ZSTD_getErrorName(size)));
  }
  stored.resize(size);
  if (max_bytes != 0 && bytes_ + kRecordingFrameHeaderBytes + stored.size() > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("recording ", path_, " ended at its limit of ", max_bytes, " bytes"));
  }
  std::string frame;
  frame.reserve(kRecordingFrameHeaderBytes + stored.size());
  AppendLittleEndian(static_cast<uint32_t>(type), &frame);
  AppendLittleEndian(static_cast<uint32_t>(stored.size()), &frame);
  AppendLittleEndian(static_cast<uint32_t>(payload.size()), &frame);
  AppendLittleEndian(Checksum(frame, stored), &frame);
  frame += stored;
  return Write(frame);
}

absl::Status RecordingWriter::Sync() {
  if (fsync(fd_) != 0) return FileError("sync recording", path_);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RecordingReader>> RecordingReader::Open(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError("open recording", path);
  std::unique_ptr<RecordingReader> reader(new RecordingReader(fd, path));
  std::string header;
  absl::Status status = reader->Peek(0, kRecordingHeaderBytes, &header);
  if (status.ok()) status = CheckHeader(header, path);
  if (!status.ok()) return status;
  return reader;
}

RecordingReader::~RecordingReader() { close(fd_); }

absl::Status RecordingReader::Peek(uint64_t at, size_t size, std::string* data) const {
  data->resize(size);
  size_t have = 0;
  while (have < size) {
    ssize_t n = pread(fd_, data->data() + have, size - have, static_cast<off_t>(at + have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("read recording", path_);
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  data->resize(have);
  return absl::OkStatus();
}

absl::Status RecordingReader::Next(RecordingFrame* frame) {
  std::string header;
  absl::Status status = Peek(offset_, kRecordingFrameHeaderBytes, &header);
  if (!status.ok()) return status;
  if (header.empty()) return absl::OutOfRangeError(absl::StrCat(path_, ": end of recording"));
  if (header.size() < kRecordingFrameHeaderBytes) {
    return DamagedAt(path_, offset_, "the recording breaks off");
  }
  auto stored_size = ReadLittleEndian<uint32_t>(header.data() + 4);
  auto raw_size = ReadLittleEndian<uint32_t>(header.data() + 8);
  if (stored_size > ZSTD_compressBound(kMaxFrameBytes) || raw_size > kMaxFrameBytes) {
    return DamagedAt(path_, offset_, "the recording is damaged");
  }
  std::string stored;
  status = Peek(offset_ + kRecordingFrameHeaderBytes, stored_size, &stored);
  if (!status.ok()) return status;
  if (stored.size() < stored_size) return DamagedAt(path_, offset_, "the recording breaks off");
  if (ReadLittleEndian<uint32_t>(header.data() + 12) !=
      Checksum(std::string_view(header).substr(0, 12), stored)) {
    return DamagedAt(path_, offset_, "the recording is damaged");
  }
  frame->payload.resize(raw_size);
  size_t size = ZSTD_decompress(frame->payload.data(), raw_size, stored.data(), stored.size());
  if (ZSTD_isError(size) || size != raw_size) {
    return DamagedAt(path_, offset_, "the recording is damaged");
  }
  frame->type = ReadLittleEndian<uint32_t>(header.data());
  offset_ += kRecordingFrameHeaderBytes + stored_size;
  return absl::OkStatus();
}

}  // namespace fleetblame::agent
