// SPDX-License-Identifier: Apache-2.0
//
// The file around a recording: a header, then frames, each compressed and with a checksum over all
// of it. docs/recording-format.md is the normative text.
//
// Threading: one thread an object. Units: bytes. Errors name the file and what to do about it.
#ifndef NODE_AGENT_TRACER_REPLAY_RECORDING_FILE_H_
#define NODE_AGENT_TRACER_REPLAY_RECORDING_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fleetblame::agent {

inline constexpr uint16_t kRecordingMajor = 1;
inline constexpr uint16_t kRecordingMinor = 0;
inline constexpr size_t kRecordingHeaderBytes = 16;
inline constexpr size_t kRecordingFrameHeaderBytes = 16;
// Of one frame, before and after compression; a larger one is damage.
inline constexpr uint32_t kMaxFrameBytes = 64u << 20;

enum class FrameType : uint32_t {
  kInfo = 1,
  kSymbols = 2,
  kSnapshot = 3,
  kTrace = 4,
  kEnd = 5,
  kDevices = 6,
};

struct RecordingFrame {
  // A value that is no FrameType comes from a later minor version and is to be skipped.
  uint32_t type = 0;
  std::string payload;  // uncompressed
};

class RecordingWriter {
 public:
  // Creates or replaces the file, readable for its owner only, and writes the header.
  static absl::StatusOr<std::unique_ptr<RecordingWriter>> Create(const std::string& path);
  ~RecordingWriter();
  RecordingWriter(const RecordingWriter&) = delete;
  RecordingWriter& operator=(const RecordingWriter&) = delete;

  // Appends a frame. RESOURCE_EXHAUSTED, and nothing written, when the file would grow beyond
  // `max_bytes` (0 = no limit). After a failed write the file is cut back to its last whole frame.
  absl::Status Append(FrameType type, std::string_view payload, uint64_t max_bytes = 0);

  // Makes what was written durable.
  absl::Status Sync();

  uint64_t bytes() const { return bytes_; }

 private:
  RecordingWriter(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  absl::Status Write(std::string_view data);

  const int fd_;
  const std::string path_;
  uint64_t bytes_ = 0;
};

class RecordingReader {
 public:
  // NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT when the file is no recording, UNIMPLEMENTED
  // when its major version is not ours, DATA_LOSS when the header is damaged.
  static absl::StatusOr<std::unique_ptr<RecordingReader>> Open(const std::string& path);
  ~RecordingReader();
  RecordingReader(const RecordingReader&) = delete;
  RecordingReader& operator=(const RecordingReader&) = delete;

  // Reads the next frame. OUT_OF_RANGE at the end of the file between two frames, DATA_LOSS where
  // it breaks off inside of one or is damaged; the reader then stays where it is.
  absl::Status Next(RecordingFrame* frame);

  // Where the next frame begins; Seek goes to such a place.
  uint64_t offset() const { return offset_; }
  void Seek(uint64_t offset) { offset_ = offset; }

  const std::string& path() const { return path_; }

 private:
  RecordingReader(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  // Reads `size` bytes at the current place without moving; fewer at the end of the file.
  absl::Status Peek(uint64_t at, size_t size, std::string* data) const;

  const int fd_;
  const std::string path_;
  uint64_t offset_ = kRecordingHeaderBytes;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_REPLAY_RECORDING_FILE_H_
