// SPDX-License-Identifier: Apache-2.0
//
// One file of the spool and the list of records in it. Knows frames, not what they mean.
//
// Appending is all or nothing: when a write fails, the file is cut back to what it held. Reading
// a damaged file yields every record whose checksums are right and says what was skipped.
//
// Threading: one thread at a time.
#ifndef NODE_AGENT_SPOOL_SEGMENT_H_
#define NODE_AGENT_SPOOL_SEGMENT_H_

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node-agent/spool/file_layer.h"
#include "node-agent/spool/spool_format.h"

namespace fleetblame::agent {

// A record on its way to disk.
struct SpoolFrame {
  FrameHeader header;
  std::string payload;
};

// A record that a segment holds.
struct SegmentEntry {
  uint64_t seq = 0;
  uint64_t offset = 0;  // of the frame
  uint64_t payload_bytes = 0;
};

// What a scan had to leave out.
struct SegmentDamage {
  uint64_t torn_bytes = 0;               // incomplete last frame, cut off
  uint64_t skipped_bytes = 0;            // damage between sound frames
  std::vector<FrameHeader> lost_frames;  // sound header, wrong payload
  bool header_lost = false;              // the file header was rebuilt from its frames
  bool any() const {
    return torn_bytes > 0 || skipped_bytes > 0 || !lost_frames.empty() || header_lost;
  }
};

class Segment {
 public:
  // File name of a segment, and its reverse; false for other files.
  static std::string Name(uint64_t epoch, uint64_t generation);
  static bool ParseName(const std::string& name, uint64_t* epoch, uint64_t* generation);

  // Makes `directory`/Name() hold exactly `frames`, atomically: after a crash the file is there
  // complete or not at all.
  static absl::StatusOr<std::unique_ptr<Segment>> Create(FileLayer& files,
                                                         const std::string& directory,
                                                         const SegmentHeader& header,
                                                         std::span<const SpoolFrame> frames,
                                                         bool sync);

  // The same for contents that are too many for memory: Begin, Append..., then Commit. Until
  // then the file has a temporary name, and destroying the object removes it.
  static absl::StatusOr<std::unique_ptr<Segment>> Begin(FileLayer& files,
                                                        const std::string& directory,
                                                        const SegmentHeader& header);
  absl::Status Commit(bool sync);

  // Reads an existing file. Cuts a torn tail of an open segment. DATA_LOSS when nothing in it is
  // of use, FAILED_PRECONDITION when a newer agent wrote it.
  static absl::StatusOr<std::unique_ptr<Segment>> Load(FileLayer& files,
                                                       const std::string& directory,
                                                       const std::string& name,
                                                       SegmentDamage* damage);

  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  absl::Status Append(std::span<const SpoolFrame> frames, bool sync);

  // DATA_LOSS when the bytes on disk are no longer what was written.
  absl::StatusOr<SpoolFrame> Read(const SegmentEntry& entry) const;

  // Entry of `seq`, or of the greatest one below it; nullptr when there is none.
  const SegmentEntry* Find(uint64_t seq) const;
  const SegmentEntry* FindAtOrBelow(uint64_t seq) const;
  // Forgets entries (in memory only): another segment has taken their place.
  void Forget(uint64_t first_seq, uint64_t last_seq);

  absl::Status Remove();

  const SegmentHeader& header() const { return header_; }
  const std::vector<SegmentEntry>& entries() const { return entries_; }  // increasing seq
  const std::set<uint64_t>& dictionaries() const { return dictionaries_; }
  const std::string& path() const { return path_; }
  uint64_t bytes() const { return file_->size(); }
  bool open() const { return header_.last_seq == 0; }
  // Last sequence number that the segment stands for; first_seq - 1 when it is open and empty.
  uint64_t last_seq() const;
  // Whether a failed append could not be undone; nothing can be appended then.
  bool broken() const { return broken_; }

 private:
  Segment(FileLayer& files, std::string directory, std::string path, SegmentHeader header,
          std::unique_ptr<AppendFile> file);

  void Note(const FrameHeader& header, uint64_t offset);
  static absl::Status Scan(std::string_view bytes, Segment& segment, SegmentDamage* damage);

  FileLayer& files_;
  const std::string directory_;
  std::string path_;
  SegmentHeader header_;
  std::unique_ptr<AppendFile> file_;
  std::vector<SegmentEntry> entries_;
  std::set<uint64_t> dictionaries_;
  uint64_t highest_seq_ = 0;
  bool temporary_ = false;
  bool broken_ = false;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_SPOOL_SEGMENT_H_
