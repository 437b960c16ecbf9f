// SPDX-License-Identifier: Apache-2.0
#include "node-agent/spool/spool_state.h"

#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "node-agent/spool/spool_format.h"

namespace fleetblame::agent {
namespace {

// Then the log is begun anew.
constexpr uint64_t kMaxBytes = 64 << 10;

std::string Encode(const SpoolState& state) {
  FrameHeader header;
  header.seq = 1;
  return EncodeFrame(header, absl::StrCat(state.spool_epoch, " ", state.sent_seq, " ",
                                          state.last_seq, " ", state.last_window_end_boot_ns, " ",
                                          state.last_window_end_unix_ns, " ", state.boot_id));
}

bool Decode(const std::string& payload, SpoolState* state) {
  const std::vector<std::string> parts = absl::StrSplit(payload, ' ');
  if (parts.size() != 6) return false;
  state->boot_id = parts[5];
  return absl::SimpleAtoi(parts[0], &state->spool_epoch) &&
         absl::SimpleAtoi(parts[1], &state->sent_seq) &&
         absl::SimpleAtoi(parts[2], &state->last_seq) &&
         absl::SimpleAtoi(parts[3], &state->last_window_end_boot_ns) &&
         absl::SimpleAtoi(parts[4], &state->last_window_end_unix_ns);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SpoolStateFile>> SpoolStateFile::Open(FileLayer& files,
                                                                     std::string path) {
  auto state = std::unique_ptr<SpoolStateFile>(new SpoolStateFile(files, std::move(path)));
  auto bytes = ReadWholeFile(files, state->path_);
  if (!bytes.ok()) return bytes.status();
  std::string_view rest = *bytes;
  for (size_t at = 0; (at = FindFrame(rest, at)) != std::string_view::npos;) {
    const FrameHeader header = *DecodeFrameHeader(rest.substr(at));
    const std::string_view payload = rest.substr(at + kFrameHeaderBytes, header.payload_bytes);
    SpoolState found;
    if (Checksum(payload) == header.payload_crc && Decode(std::string(payload), &found)) {
      state->last_ = found;
    }
    at += kFrameHeaderBytes;
  }
  return state;
}

absl::Status SpoolStateFile::Append(const std::string& frame) {
  if (file_ == nullptr) {
    auto file = files_.Open(path_);
    if (!file.ok()) return file.status();
    file_ = *std::move(file);
  }
  if (file_->size() + frame.size() <= kMaxBytes) return file_->Append(frame);
  file_.reset();
  return WriteFileAtomically(files_, path_, frame);
}

absl::Status SpoolStateFile::Write(const SpoolState& state) {
  last_ = state;
  absl::Status status = Append(Encode(state));
  if (!status.ok()) {
    file_.reset();
    files_.Remove(path_).IgnoreError();
  }
  return status;
}

}  // namespace fleetblame::agent
