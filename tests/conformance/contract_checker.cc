// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/contract_checker.h"

#include <limits>

#include "absl/strings/str_cat.h"

namespace fleetblame::testing {
namespace {

using agent::Confidence;
using agent::DeviceNumber;
using agent::Operation;

constexpr size_t kMaxViolations = 100;
// Nothing that is counted in one window comes near; a difference that went below zero does.
constexpr uint64_t kAbsurd = uint64_t{1} << 62;

std::string Text(DeviceNumber device) { return absl::StrCat(device.major, ":", device.minor); }

std::string Text(const agent::RowKey& k) {
  return absl::StrCat("row (stacks ", k.dirtier_stack, "/", k.issuer_stack, ", actors ",
                      k.dirtier_actor, "/", k.issuer_actor, ", device ", Text(k.device), ", file ",
                      k.file, ", operation ", static_cast<int>(k.operation), ", confidence ",
                      static_cast<int>(k.confidence), ", reason ", static_cast<int>(k.reason), ")");
}

// The direction under which the kernel accounts an operation; kUnspecified when it does not.
Operation DirectionOf(Operation operation) {
  switch (operation) {
    case Operation::kRead:
    case Operation::kWrite:
    case Operation::kDiscard:
      return operation;
    case Operation::kWriteZeroes:
    case Operation::kSecureErase:
      return Operation::kWrite;
    default:
      return Operation::kUnspecified;
  }
}

}  // namespace

void ContractChecker::Violation(const std::string& sentence) {
  if (violations_.size() < kMaxViolations) violations_.push_back(sentence);
}

void ContractChecker::CheckInfo() {
  if (info_.kind.empty()) Violation("the tracer has no kind");
  if (info_.kernel_release.empty()) Violation("the kernel release is empty");
  if (info_.reasons.empty() || !info_.reasons[0].empty()) {
    Violation("reason 0 must be there and be empty");
  }
  for (size_t i = 1; i < info_.reasons.size(); ++i) {
    if (info_.reasons[i].empty()) Violation(absl::StrCat("reason ", i, " has no name"));
  }
  for (const std::string& limitation : info_.limitations) {
    if (limitation.empty()) Violation("an empty limitation");
  }
}

void ContractChecker::CheckDefinitions(const agent::Snapshot& snapshot) {
  std::set<uint32_t> here;
  for (const agent::StackDefinition& s : snapshot.stacks) {
    if (s.id == agent::kNoStack || s.id == agent::kLostStack) {
      Violation(absl::StrCat("stack id ", s.id, " is special and cannot be defined"));
    }
    if (!here.insert(s.id).second) Violation(absl::StrCat("stack ", s.id, " is defined twice"));
    if (s.addresses.empty()) Violation(absl::StrCat("stack ", s.id, " has no address"));
    for (uint64_t address : s.addresses) {
      if (address == 0) Violation(absl::StrCat("stack ", s.id, " holds address 0"));
    }
    stacks_.insert(s.id);
  }
  here.clear();
  for (const agent::ActorDefinition& a : snapshot.actors) {
    if (a.id == agent::kNoActor) Violation("actor id 0 is special and cannot be defined");
    if (!here.insert(a.id).second) Violation(absl::StrCat("actor ", a.id, " is defined twice"));
    actors_.insert(a.id);
  }
  here.clear();
  for (const agent::FileDefinition& f : snapshot.files) {
    if (f.id == agent::kNoFile) Violation("file id 0 is special and cannot be defined");
    if (!here.insert(f.id).second) Violation(absl::StrCat("file ", f.id, " is defined twice"));
    if (f.inode == 0) Violation(absl::StrCat("file ", f.id, " has no inode"));
    files_.insert(f.id);
  }
}

void ContractChecker::CheckIds(const char* who, agent::StackId dirtier_stack,
                               agent::StackId issuer_stack, agent::ActorId dirtier_actor,
                               agent::ActorId issuer_actor, agent::FileId file) {
  for (agent::StackId id : {dirtier_stack, issuer_stack}) {
    if (!stacks_.contains(id)) Violation(absl::StrCat(who, " names undefined stack ", id));
  }
  for (agent::ActorId id : {dirtier_actor, issuer_actor}) {
    if (!actors_.contains(id)) Violation(absl::StrCat(who, " names undefined actor ", id));
  }
  if (!files_.contains(file)) Violation(absl::StrCat(who, " names undefined file ", file));
}

void ContractChecker::CheckKey(const agent::RowKey& k) {
  CheckIds("a row", k.dirtier_stack, k.issuer_stack, k.dirtier_actor, k.issuer_actor, k.file);
  if (k.operation == Operation::kUnspecified || k.operation > Operation::kOther) {
    Violation(absl::StrCat(Text(k), " has no operation"));
  }
  if (k.confidence == Confidence::kUnspecified || k.confidence > Confidence::kEstimated) {
    Violation(absl::StrCat(Text(k), " has no confidence"));
  }
  if (k.reason >= info_.reasons.size()) Violation(absl::StrCat(Text(k), ": unknown reason"));
  if (k.confidence == Confidence::kLost && k.dirtier_actor != agent::kNoActor) {
    Violation(absl::StrCat(Text(k), " is lost but names a dirtier"));
  }
  bool found = k.confidence == Confidence::kExact || k.confidence == Confidence::kInode ||
               k.confidence == Confidence::kIssuer;
  if (found && k.dirtier_actor == agent::kNoActor) {
    Violation(absl::StrCat(Text(k), " claims to know the dirtier and names none"));
  }
}

void ContractChecker::CheckHistogram(const char* what, const SparseHistogram& histogram,
                                     uint64_t ios, uint64_t sum_ns) {
  if (histogram.total() != ios) {
    Violation(absl::StrCat(what, " histogram counts ", histogram.total(), " of ", ios, " IOs"));
    return;
  }
  double low = 0, high = 0;
  int previous = -1;
  for (const auto& [bucket, count] : histogram.entries()) {
    if (bucket >= kHistogramBuckets || bucket <= previous || count == 0) {
      Violation(absl::StrCat(what, " histogram has a bad entry at bucket ", bucket));
      return;
    }
    previous = bucket;
    low += static_cast<double>(count) * static_cast<double>(HistogramLowerNs(bucket));
    high += static_cast<double>(count) * static_cast<double>(HistogramUpperNs(bucket));
  }
  auto sum = static_cast<double>(sum_ns);
  // Doubles of this size are off by a few units.
  if (sum < low * 0.999999 || sum > high * 1.000001) {
    Violation(absl::StrCat(what, " sum ", sum_ns, " ns lies outside of what its histogram allows, ",
                           low, " to ", high));
  }
}

void ContractChecker::CheckValues(const agent::RowKey& key, const agent::RowValues& v) {
  for (uint64_t value : {v.ios, v.bytes, v.wait_ns, v.io_ns, v.errors, v.requeues}) {
    if (value >= kAbsurd) Violation(absl::StrCat(Text(key), " holds an absurd number ", value));
  }
  if (v.ios == 0 && v.bytes == 0) Violation(absl::StrCat(Text(key), " says nothing"));
  if (v.errors > v.ios) Violation(absl::StrCat(Text(key), " has more errors than IOs"));
  CheckHistogram("wait", v.wait, v.ios, v.wait_ns);
  CheckHistogram("io", v.io, v.ios, v.io_ns);
}

void ContractChecker::CheckBooks(const agent::Snapshot& snapshot) {
  std::map<std::pair<DeviceNumber, Operation>, Totals> sums;
  for (const agent::Row& row : snapshot.rows) {
    Operation direction = DirectionOf(row.key.operation);
    if (direction == Operation::kUnspecified) continue;
    Totals& sum = sums[{row.key.device, direction}];
    (row.key.confidence == Confidence::kLost ? sum.lost_bytes : sum.recorded_bytes) +=
        row.values.bytes;
    sum.recorded_ios += row.values.ios;
  }
  std::set<std::pair<DeviceNumber, Operation>> seen;
  for (const agent::Books& b : snapshot.books) {
    std::string name =
        absl::StrCat("books of ", Text(b.device), " direction ", static_cast<int>(b.direction));
    if (DirectionOf(b.direction) != b.direction || b.direction == Operation::kUnspecified) {
      Violation(name + ": no direction that the kernel accounts");
    }
    auto key = std::pair(b.device, b.direction);
    if (!seen.insert(key).second) Violation(name + " come twice");
    const Totals& sum = sums[key];
    if (sum.recorded_bytes != b.recorded_bytes || sum.lost_bytes != b.lost_bytes ||
        sum.recorded_ios != b.recorded_ios) {
      Violation(absl::StrCat(name, " say ", b.recorded_bytes, " + ", b.lost_bytes, " bytes in ",
                             b.recorded_ios, " IOs, the rows ", sum.recorded_bytes, " + ",
                             sum.lost_bytes, " in ", sum.recorded_ios));
    }
    for (uint64_t value : {b.recorded_bytes, b.lost_bytes, b.kernel_bytes, b.kernel_ios}) {
      if (value >= kAbsurd) Violation(absl::StrCat(name, " hold an absurd number ", value));
    }
    Totals& total = totals_[key];
    total.recorded_bytes += b.recorded_bytes;
    total.lost_bytes += b.lost_bytes;
    total.kernel_bytes += b.kernel_bytes;
    total.recorded_ios += b.recorded_ios;
    total.kernel_ios += b.kernel_ios;
  }
  for (const auto& [key, sum] : sums) {
    if (!seen.contains(key)) {
      Violation(absl::StrCat("rows of ", Text(key.first), " direction ",
                             static_cast<int>(key.second), " have no books"));
    }
  }
}

void ContractChecker::Check(const agent::Snapshot& snapshot) {
  if (snapshot.end_boot_ns < snapshot.start_boot_ns) Violation("a window ends before it begins");
  if (!first_ && snapshot.start_boot_ns != last_end_boot_ns_) {
    Violation(absl::StrCat("a window begins at ", snapshot.start_boot_ns,
                           ", the one before it ended at ", last_end_boot_ns_));
  }
  first_ = false;
  last_end_boot_ns_ = snapshot.end_boot_ns;
  CheckDefinitions(snapshot);
  std::set<agent::RowKey> keys;
  for (const agent::Row& row : snapshot.rows) {
    if (!keys.insert(row.key).second) Violation(absl::StrCat(Text(row.key), " comes twice"));
    CheckKey(row.key);
    CheckValues(row.key, row.values);
    ++rows_;
    row_ios_ += row.values.ios;
    row_bytes_ += row.values.bytes;
  }
  CheckBooks(snapshot);
  for (const auto& [name, delta] : snapshot.losses) {
    if (name.empty()) Violation("a loss counter has no name");
    if (delta >= kAbsurd) Violation(absl::StrCat("loss ", name, " is absurd: ", delta));
  }
  for (const agent::TraceRecord& r : unresolved_) {
    CheckIds("a trace record", r.dirtier_stack, r.issuer_stack, r.dirtier_actor, r.issuer_actor,
             r.file);
  }
  unresolved_.clear();
}

void ContractChecker::Check(const agent::TraceRecord& r) {
  ++trace_records_;
  trace_bytes_ += r.bytes;
  std::string name = absl::StrCat("trace record at ", r.complete_boot_ns);
  if (r.operation == Operation::kUnspecified || r.operation > Operation::kOther) {
    Violation(name + " has no operation");
  }
  if (r.confidence == Confidence::kUnspecified || r.confidence > Confidence::kEstimated) {
    Violation(name + " has no confidence");
  }
  if (r.reason >= info_.reasons.size()) Violation(name + " has an unknown reason");
  if (r.rwbs.empty()) Violation(name + " has no rwbs");
  if (r.error < 0) Violation(name + " has a negative error");
  if (r.other_bytes > r.bytes) Violation(name + " charges more to others than it has");
  for (uint64_t value : {r.bytes, r.wait_ns, r.io_ns, r.sector}) {
    if (value >= kAbsurd) Violation(absl::StrCat(name, " holds an absurd number ", value));
  }
  unresolved_.push_back(r);
}

void ContractChecker::CheckEnd() {
  for (const agent::TraceRecord& r : unresolved_) {
    CheckIds("a trace record without a later snapshot", r.dirtier_stack, r.issuer_stack,
             r.dirtier_actor, r.issuer_actor, r.file);
  }
  unresolved_.clear();
}

}  // namespace fleetblame::testing
