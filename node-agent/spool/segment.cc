// SPDX-License-Identifier: Apache-2.0
#include "node-agent/spool/segment.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/absl_view.h"

namespace fleetblame::agent {
namespace {

constexpr std::string_view kSuffix = ".seg";
constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr size_t kNameLength = 16 + 1 + 16 + kSuffix.size();

absl::Status About(const absl::Status& status, const std::string& path) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

}  // namespace

std::string Segment::Name(uint64_t epoch, uint64_t generation) {
  return absl::StrFormat("%016x-%016x%s", epoch, generation, std::string(kSuffix));
}

bool Segment::ParseName(const std::string& name, uint64_t* epoch, uint64_t* generation) {
  return name.size() == kNameLength && name[16] == '-' && name.ends_with(kSuffix) &&
         absl::SimpleHexAtoi(name.substr(0, 16), epoch) &&
         absl::SimpleHexAtoi(name.substr(17, 16), generation);
}

Segment::Segment(FileLayer& files, std::string directory, std::string path, SegmentHeader header,
                 std::unique_ptr<AppendFile> file)
    : files_(files),
      directory_(std::move(directory)),
      path_(std::move(path)),
      header_(header),
      file_(std::move(file)) {}

Segment::~Segment() {
  if (temporary_) files_.Remove(path_).IgnoreError();
}

absl::StatusOr<std::unique_ptr<Segment>> Segment::Begin(FileLayer& files,
                                                        const std::string& directory,
                                                        const SegmentHeader& header) {
  const std::string path = absl::StrCat(directory, "/", Name(header.spool_epoch, header.generation),
                                        ToAbsl(kTemporarySuffix));
  auto file = files.Open(path);
  if (!file.ok()) return file.status();
  if (auto status = (*file)->Truncate(0); !status.ok()) return status;
  auto segment =
      std::unique_ptr<Segment>(new Segment(files, directory, path, header, *std::move(file)));
  segment->temporary_ = true;
  if (auto status = segment->file_->Append(EncodeSegmentHeader(header)); !status.ok())
    return status;
  return segment;
}

absl::Status Segment::Commit(bool sync) {
  if (sync) {
    if (auto status = file_->Sync(); !status.ok()) return status;
  }
  const std::string final_path = path_.substr(0, path_.size() - kTemporarySuffix.size());
  if (auto status = files_.Rename(path_, final_path); !status.ok()) return status;
  temporary_ = false;
  path_ = final_path;
  return sync ? files_.SyncDirectory(directory_) : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Segment>> Segment::Create(FileLayer& files,
                                                         const std::string& directory,
                                                         const SegmentHeader& header,
                                                         std::span<const SpoolFrame> frames,
                                                         bool sync) {
  auto segment = Begin(files, directory, header);
  if (!segment.ok()) return segment.status();
  if (auto status = (*segment)->Append(frames, false); !status.ok()) return status;
  if (auto status = (*segment)->Commit(sync); !status.ok()) return status;
  return segment;
}

absl::StatusOr<std::unique_ptr<Segment>> Segment::Load(FileLayer& files,
                                                       const std::string& directory,
                                                       const std::string& name,
                                                       SegmentDamage* damage) {
  *damage = SegmentDamage();
  const std::string path = absl::StrCat(directory, "/", name);
  auto file = files.Open(path);
  if (!file.ok()) return file.status();
  auto bytes = (*file)->Read(0, (*file)->size());
  if (!bytes.ok()) return bytes.status();

  auto header = DecodeSegmentHeader(*bytes);
  if (absl::IsFailedPrecondition(header.status())) return About(header.status(), path);
  if (!header.ok()) {
    // The name says which spool it belongs to, the frames say which records it holds.
    header.emplace();
    if (!ParseName(name, &header->spool_epoch, &header->generation)) {
      return absl::DataLossError(absl::StrCat(path, ": it is not a spool segment"));
    }
    damage->header_lost = true;
  }
  auto segment =
      std::unique_ptr<Segment>(new Segment(files, directory, path, *header, *std::move(file)));
  if (auto status = Scan(*bytes, *segment, damage); !status.ok()) return status;
  if (damage->header_lost) {
    if (segment->entries_.empty()) {
      return absl::DataLossError(absl::StrCat(path, ": no record in it is readable"));
    }
    segment->header_.first_seq = segment->entries_.front().seq;
    segment->header_.last_seq = segment->entries_.back().seq;
    segment->header_.record_count = static_cast<uint32_t>(segment->entries_.size());
  }
  return segment;
}

absl::Status Segment::Scan(std::string_view bytes, Segment& segment, SegmentDamage* damage) {
  size_t at = damage->header_lost ? 0 : kSegmentHeaderBytes;
  while (at < bytes.size()) {
    const auto frame = DecodeFrameHeader(bytes.substr(at));
    if (frame && frame->payload_bytes <= bytes.size() - at - kFrameHeaderBytes) {
      const std::string_view payload = bytes.substr(at + kFrameHeaderBytes, frame->payload_bytes);
      const bool in_order = frame->seq > segment.highest_seq_;
      if (Checksum(payload) == frame->payload_crc && in_order) {
        segment.Note(*frame, at);
        at += kFrameHeaderBytes + frame->payload_bytes;
        continue;
      }
      if (in_order) damage->lost_frames.push_back(*frame);
    }
    const size_t next = FindFrame(bytes, at + 1);
    if (next == std::string_view::npos) {
      // Nothing sound follows. When a frame is merely cut short, its writer died in the middle.
      const bool whole = frame && frame->payload_bytes <= bytes.size() - at - kFrameHeaderBytes;
      if (whole || !segment.open() || damage->header_lost) {
        damage->skipped_bytes += bytes.size() - at;
        return absl::OkStatus();
      }
      damage->torn_bytes = bytes.size() - at;
      return segment.file_->Truncate(at);
    }
    damage->skipped_bytes += next - at;
    at = next;
  }
  return absl::OkStatus();
}

void Segment::Note(const FrameHeader& header, uint64_t offset) {
  entries_.push_back({header.seq, offset, header.payload_bytes});
  dictionaries_.insert(header.dictionary_id);
  highest_seq_ = header.seq;
}

absl::Status Segment::Append(std::span<const SpoolFrame> frames, bool sync) {
  if (broken_) {
    return absl::UnavailableError(absl::StrCat(path_, ": an earlier failed write was not undone"));
  }
  const uint64_t before = file_->size();
  std::string bytes;
  absl::Status status;
  std::vector<uint64_t> offsets;
  for (const SpoolFrame& frame : frames) {
    offsets.push_back(before + bytes.size());
    bytes += EncodeFrame(frame.header, frame.payload);
  }
  status = file_->Append(bytes);
  if (status.ok() && sync) status = file_->Sync();
  if (!status.ok()) {
    // A tail that cannot be cut off now is cut at the next start; nothing may follow it meanwhile.
    broken_ = !file_->Truncate(before).ok();
    return status;
  }
  for (size_t i = 0; i < frames.size(); ++i) {
    FrameHeader header = frames[i].header;
    header.payload_bytes = static_cast<uint32_t>(frames[i].payload.size());
    Note(header, offsets[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<SpoolFrame> Segment::Read(const SegmentEntry& entry) const {
  auto bytes = file_->Read(entry.offset, kFrameHeaderBytes + entry.payload_bytes);
  if (!bytes.ok()) return bytes.status();
  const auto header = DecodeFrameHeader(*bytes);
  if (!header || header->seq != entry.seq || header->payload_bytes != entry.payload_bytes) {
    return absl::DataLossError(
        absl::StrCat(path_, ": the record at offset ", entry.offset, " was damaged"));
  }
  bytes->erase(0, kFrameHeaderBytes);
  if (Checksum(*bytes) != header->payload_crc) {
    return absl::DataLossError(
        absl::StrCat(path_, ": the record at offset ", entry.offset, " fails its checksum"));
  }
  return SpoolFrame{*header, *std::move(bytes)};
}

const SegmentEntry* Segment::FindAtOrBelow(uint64_t seq) const {
  auto it = std::upper_bound(entries_.begin(), entries_.end(), seq,
                             [](uint64_t s, const SegmentEntry& e) { return s < e.seq; });
  return it == entries_.begin() ? nullptr : &*std::prev(it);
}

const SegmentEntry* Segment::Find(uint64_t seq) const {
  const SegmentEntry* entry = FindAtOrBelow(seq);
  return entry != nullptr && entry->seq == seq ? entry : nullptr;
}

void Segment::Forget(uint64_t first_seq, uint64_t last_seq) {
  std::erase_if(entries_, [&](const SegmentEntry& entry) {
    return entry.seq >= first_seq && entry.seq <= last_seq;
  });
}

absl::Status Segment::Remove() { return files_.Remove(path_); }

uint64_t Segment::last_seq() const {
  return open() ? std::max(highest_seq_, header_.first_seq - 1) : header_.last_seq;
}

}  // namespace fleetblame::agent
