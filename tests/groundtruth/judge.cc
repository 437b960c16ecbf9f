// SPDX-License-Identifier: Apache-2.0
#include "tests/groundtruth/judge.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace fleetblame::testing {
namespace {

using agent::Confidence;
using agent::Operation;

bool StackHoldsOne(const ResolvedRow& row, const std::vector<std::string>& wanted) {
  for (const std::string& frame : row.dirtier_frames) {
    for (const std::string& name : wanted) {
      if (frame.find(name) != std::string::npos) return true;
    }
  }
  return false;
}

bool IsData(const ResolvedRow& row, const Truth& truth) {
  if (row.file.id != agent::kNoFile) return truth.data_inodes.contains(row.file.inode);
  // Only the top files of a window are named. Direct IO and reads are the issuer's own; the last
  // dirtier of an inode is asked for its pages alone.
  return row.confidence == Confidence::kExact || row.confidence == Confidence::kIssuer ||
         row.confidence == Confidence::kInode;
}

// Whether a file is known to be of other writers than this one.
bool IsOfOthers(const ResolvedRow& row, const Truth& truth, const WriterTruth& writer) {
  if (row.file.id == agent::kNoFile || row.file.inode == writer.inode) return false;
  return std::any_of(truth.writers.begin(), truth.writers.end(), [&row](const WriterTruth& other) {
    return other.inode != 0 && other.inode == row.file.inode;
  });
}

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 1.0 : static_cast<double>(part) / static_cast<double>(whole);
}

const char* OperationName(Operation operation) {
  switch (operation) {
    case Operation::kRead:
      return "read";
    case Operation::kWrite:
      return "write";
    case Operation::kDiscard:
      return "discard";
    case Operation::kWriteZeroes:
      return "zeroes";
    case Operation::kFlush:
      return "flush";
    case Operation::kSecureErase:
      return "erase";
    default:
      return "other";
  }
}

// The frames that tell stacks apart: the innermost ones are often the same.
std::string Outline(const std::vector<std::string>& frames) {
  constexpr size_t kEnds = 12;
  if (frames.size() <= 2 * kEnds) return absl::StrJoin(frames, "<");
  return absl::StrCat(absl::StrJoin(frames.begin(), frames.begin() + kEnds, "<"), "<…<",
                      absl::StrJoin(frames.end() - kEnds, frames.end(), "<"));
}

}  // namespace

Operation DirectionOf(Operation operation) {
  switch (operation) {
    case Operation::kRead:
      return Operation::kRead;
    case Operation::kDiscard:
      return Operation::kDiscard;
    default:
      return Operation::kWrite;
  }
}

std::vector<std::string> Ledger::Frames(agent::StackId id) const {
  std::vector<std::string> frames;
  auto found = stacks_.find(id);
  if (found == stacks_.end()) return frames;
  for (uint64_t address : found->second) frames.push_back(symbols_->Name(address));
  return frames;
}

void Ledger::Add(const agent::Snapshot& snapshot, const std::vector<agent::DeviceNumber>& devices) {
  auto asked = [&devices](agent::DeviceNumber device) {
    return std::find(devices.begin(), devices.end(), device) != devices.end();
  };
  for (const auto& stack : snapshot.stacks) stacks_[stack.id] = stack.addresses;
  for (const auto& actor : snapshot.actors) actors_[actor.id] = actor;
  for (const auto& file : snapshot.files) files_[file.id] = file;
  for (const agent::Row& row : snapshot.rows) {
    if (!asked(row.key.device)) continue;
    ResolvedRow resolved;
    auto comm = [this](agent::ActorId id) {
      auto found = actors_.find(id);
      return found == actors_.end() ? std::string() : found->second.comm;
    };
    resolved.dirtier_comm = comm(row.key.dirtier_actor);
    resolved.issuer_comm = comm(row.key.issuer_actor);
    resolved.dirtier_frames = Frames(row.key.dirtier_stack);
    resolved.issuer_frames = Frames(row.key.issuer_stack);
    if (auto found = files_.find(row.key.file); found != files_.end())
      resolved.file = found->second;
    resolved.operation = row.key.operation;
    resolved.confidence = row.key.confidence;
    if (row.key.reason < info_->reasons.size()) resolved.reason = info_->reasons[row.key.reason];
    resolved.bytes = row.values.bytes;
    resolved.ios = row.values.ios;
    resolved.errors = row.values.errors;
    resolved.requeues = row.values.requeues;
    rows_.push_back(std::move(resolved));
  }
  for (const agent::Books& books : snapshot.books) {
    if (!asked(books.device)) continue;
    agent::Books& sum = books_[books.direction];
    sum.direction = books.direction;
    sum.device = books.device;
    sum.recorded_bytes += books.recorded_bytes;
    sum.lost_bytes += books.lost_bytes;
    sum.kernel_bytes += books.kernel_bytes;
    sum.recorded_ios += books.recorded_ios;
    sum.kernel_ios += books.kernel_ios;
  }
  for (const auto& [name, count] : snapshot.losses) losses_[name] += count;
}

void Ledger::BeginSpan() {
  rows_.clear();
  books_.clear();
  losses_.clear();
}

double WriterVerdict::data_share() const {
  return Share(std::min(data_bytes, truth_bytes), truth_bytes);
}

double Verdict::all_share() const { return Share(writers_bytes + own_tree_bytes, total_bytes); }

double Verdict::own_tree_share() const {
  return total_bytes == 0 ? 0.0 : Share(own_tree_bytes, total_bytes);
}

double Verdict::own_metadata_share() const {
  return total_bytes == 0 ? 0.0 : Share(own_metadata_bytes, total_bytes);
}

double Verdict::data_share() const {
  uint64_t credited = 0;
  uint64_t truth = 0;
  for (const WriterVerdict& writer : writers) {
    credited += std::min(writer.data_bytes, writer.truth_bytes);
    truth += writer.truth_bytes;
  }
  return Share(credited, truth);
}

double Verdict::joint_data_share() const {
  uint64_t data = 0;
  uint64_t truth = 0;
  for (const WriterVerdict& writer : writers) {
    data += writer.data_bytes;
    truth += writer.truth_bytes;
  }
  return Share(std::min(data, truth), truth);
}

Verdict Judge(const Ledger& ledger, const Truth& truth) {
  Verdict verdict;
  for (const WriterTruth& writer : truth.writers) {
    verdict.writers.push_back({writer.comm, writer.data_bytes, 0, 0});
  }
  for (const ResolvedRow& row : ledger.rows()) {
    // Of other directions only what is exact is looked at.
    const bool judged = DirectionOf(row.operation) == truth.direction;
    const bool exact = row.confidence == Confidence::kExact;
    if (judged) {
      verdict.total_bytes += row.bytes;
      verdict.by_confidence[row.confidence] += row.bytes;
    }
    const bool data = IsData(row, truth);
    bool known = false;
    for (size_t i = 0; i < truth.writers.size(); ++i) {
      const WriterTruth& writer = truth.writers[i];
      if (row.dirtier_comm != writer.comm) continue;
      known = true;
      if (exact && IsOfOthers(row, truth, writer)) verdict.wrong_exact_bytes += row.bytes;
      if (!judged) break;
      verdict.writers_bytes += row.bytes;
      verdict.writers[i].all_bytes += row.bytes;
      if (data && StackHoldsOne(row, writer.frames)) verdict.writers[i].data_bytes += row.bytes;
      break;
    }
    if (known || !exact) continue;
    const bool metadata =
        row.file.id == agent::kNoFile || !truth.data_inodes.contains(row.file.inode);
    if (!metadata || !truth.metadata_comms.contains(row.dirtier_comm)) {
      verdict.wrong_exact_bytes += row.bytes;
    } else if (judged) {
      const bool tree = StackHoldsOne(row, truth.own_frames);
      (tree ? verdict.own_tree_bytes : verdict.own_metadata_bytes) += row.bytes;
    }
  }
  return verdict;
}

const char* ConfidenceName(Confidence confidence) {
  switch (confidence) {
    case Confidence::kExact:
      return "exact";
    case Confidence::kInode:
      return "inode";
    case Confidence::kJournal:
      return "journal";
    case Confidence::kCgroup:
      return "cgroup";
    case Confidence::kIssuer:
      return "issuer";
    case Confidence::kLost:
      return "lost";
    case Confidence::kEstimated:
      return "estimated";
    default:
      return "unspecified";
  }
}

std::string Dump(const Ledger& ledger, size_t limit) {
  std::vector<ResolvedRow> rows = ledger.rows();
  std::sort(rows.begin(), rows.end(),
            [](const ResolvedRow& a, const ResolvedRow& b) { return a.bytes > b.bytes; });
  std::string text;
  for (size_t i = 0; i < rows.size() && i < limit; ++i) {
    const ResolvedRow& row = rows[i];
    absl::StrAppendFormat(
        &text, "  %9d B %6d io %-5s %-7s dirtier %-15s issuer %-15s reason=%s ino=%d %s\n",
        row.bytes, row.ios, OperationName(row.operation), ConfidenceName(row.confidence),
        row.dirtier_comm, row.issuer_comm, row.reason, row.file.inode, row.file.path);
    absl::StrAppend(&text, "      d: ", Outline(row.dirtier_frames),
                    "\n      i: ", Outline(row.issuer_frames), "\n");
  }
  if (rows.size() > limit) absl::StrAppend(&text, "  … ", rows.size() - limit, " more rows\n");
  for (const auto& [direction, books] : ledger.books()) {
    absl::StrAppendFormat(&text, "  books %-7s recorded %d lost %d kernel %d bytes; ios %d of %d\n",
                          OperationName(direction), books.recorded_bytes, books.lost_bytes,
                          books.kernel_bytes, books.recorded_ios, books.kernel_ios);
  }
  for (const auto& [name, count] : ledger.losses()) {
    if (count != 0) absl::StrAppend(&text, "  loss ", name, " = ", count, "\n");
  }
  return text;
}

}  // namespace fleetblame::testing
