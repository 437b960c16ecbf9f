// SPDX-License-Identifier: Apache-2.0
#include "node-agent/dictionary/definition_file.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "node-agent/spool/spool_format.h"

namespace fleetblame::agent {
namespace {

constexpr std::string_view kSuffix = ".dict";
// A file that claims larger numbers is damaged.
constexpr uint32_t kMaxNumber = 4u << 20;

uint64_t Key(DefinitionKind kind, uint32_t number) {
  return static_cast<uint64_t>(kind) << 32 | number;
}

}  // namespace

std::string DefinitionFile::Name(uint64_t dictionary_id) {
  return absl::StrFormat("%016x%s", dictionary_id, std::string(kSuffix));
}

bool DefinitionFile::ParseName(const std::string& name, uint64_t* dictionary_id) {
  return name.size() == 16 + kSuffix.size() && name.ends_with(kSuffix) &&
         absl::SimpleHexAtoi(name.substr(0, 16), dictionary_id);
}

DefinitionFile::DefinitionFile(FileLayer& files, const std::string& directory,
                               uint64_t dictionary_id)
    : files_(files),
      path_(absl::StrCat(directory, "/", Name(dictionary_id))),
      dictionary_id_(dictionary_id) {}

std::unique_ptr<DefinitionFile> DefinitionFile::Create(FileLayer& files,
                                                       const std::string& directory,
                                                       uint64_t dictionary_id) {
  return std::unique_ptr<DefinitionFile>(new DefinitionFile(files, directory, dictionary_id));
}

absl::StatusOr<std::unique_ptr<DefinitionFile>> DefinitionFile::Load(FileLayer& files,
                                                                     const std::string& directory,
                                                                     uint64_t dictionary_id) {
  auto result = Create(files, directory, dictionary_id);
  auto file = files.Open(result->path_);
  if (!file.ok()) return file.status();
  auto bytes = (*file)->Read(0, (*file)->size());
  if (!bytes.ok()) return bytes.status();
  result->file_ = *std::move(file);
  result->Scan(*bytes);
  return result;
}

void DefinitionFile::Scan(std::string_view bytes) {
  for (size_t at = 0; (at = FindFrame(bytes, at)) != std::string_view::npos;) {
    const FrameHeader header = *DecodeFrameHeader(bytes.substr(at));
    const std::string_view payload = bytes.substr(at + kFrameHeaderBytes, header.payload_bytes);
    const uint64_t kind = header.seq >> 32;
    const auto number = static_cast<uint32_t>(header.seq);
    if (payload.size() == header.payload_bytes && Checksum(payload) == header.payload_crc &&
        kind < kDefinitionKinds && number > 0 && number <= kMaxNumber) {
      auto& entries = entries_[kind];
      if (entries.size() < number) entries.resize(number);
      entries[number - 1] = Entry{at, header.payload_bytes, false};
    }
    at += kFrameHeaderBytes;
  }
}

uint32_t DefinitionFile::Add(DefinitionKind kind, std::string serialized) {
  auto& entries = entries_[static_cast<size_t>(kind)];
  entries.emplace_back();
  const auto number = static_cast<uint32_t>(entries.size());
  pending_.push_back({kind, number, std::move(serialized)});
  return number;
}

absl::Status DefinitionFile::Persist(bool sync) {
  if (pending_.empty()) return absl::OkStatus();
  if (file_ == nullptr) {
    auto file = files_.Open(path_);
    if (!file.ok()) return file.status();
    file_ = *std::move(file);
  }
  const uint64_t before = file_->size();
  std::string bytes;
  std::vector<Entry> placed;
  for (const Pending& pending : pending_) {
    FrameHeader header;
    header.seq = Key(pending.kind, pending.number);
    header.dictionary_id = dictionary_id_;
    placed.push_back({before + bytes.size(), static_cast<uint32_t>(pending.serialized.size())});
    bytes += EncodeFrame(header, pending.serialized);
  }
  absl::Status status = file_->Append(bytes);
  if (status.ok() && sync) status = file_->Sync();
  if (!status.ok()) {
    // Remains of it do no harm: a frame is found wherever it begins.
    file_->Truncate(before).IgnoreError();
    return status;
  }
  for (size_t i = 0; i < pending_.size(); ++i) {
    Entry& entry = entries_[static_cast<size_t>(pending_[i].kind)][pending_[i].number - 1];
    entry.offset = placed[i].offset;
    entry.payload_bytes = placed[i].payload_bytes;
  }
  pending_.clear();
  pending_.shrink_to_fit();
  return absl::OkStatus();
}

const DefinitionFile::Entry* DefinitionFile::Find(DefinitionKind kind, uint32_t number) const {
  const auto& entries = entries_[static_cast<size_t>(kind)];
  return number == 0 || number > entries.size() ? nullptr : &entries[number - 1];
}

std::optional<std::string> DefinitionFile::Read(DefinitionKind kind, uint32_t number) const {
  for (const Pending& pending : pending_) {
    if (pending.kind == kind && pending.number == number) return pending.serialized;
  }
  const Entry* entry = Find(kind, number);
  // The first frame of a file has offset 0 and is told apart by its length.
  if (entry == nullptr || file_ == nullptr || (entry->offset == 0 && entry->payload_bytes == 0)) {
    return std::nullopt;
  }
  auto bytes = file_->Read(entry->offset, kFrameHeaderBytes + entry->payload_bytes);
  if (!bytes.ok()) return std::nullopt;
  const auto header = DecodeFrameHeader(*bytes);
  if (!header || header->seq != Key(kind, number)) return std::nullopt;
  bytes->erase(0, kFrameHeaderBytes);
  if (Checksum(*bytes) != header->payload_crc) return std::nullopt;
  return *std::move(bytes);
}

bool DefinitionFile::acknowledged(DefinitionKind kind, uint32_t number) const {
  const Entry* entry = Find(kind, number);
  return entry != nullptr && entry->acknowledged;
}

void DefinitionFile::Acknowledge(DefinitionKind kind, uint32_t number) {
  auto& entries = entries_[static_cast<size_t>(kind)];
  if (number > 0 && number <= entries.size()) entries[number - 1].acknowledged = true;
}

void DefinitionFile::ForgetAcknowledgements() {
  for (auto& entries : entries_) {
    for (Entry& entry : entries) entry.acknowledged = false;
  }
}

uint32_t DefinitionFile::size(DefinitionKind kind) const {
  return static_cast<uint32_t>(entries_[static_cast<size_t>(kind)].size());
}

absl::Status DefinitionFile::Remove() {
  file_.reset();
  return files_.Remove(path_);
}

}  // namespace fleetblame::agent
