// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/row_filter.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "aggregator/query/intent_lookup.h"
#include "common/absl_view.h"
#include "re2/re2.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kMaxRegexBytes = 1024;
constexpr int64_t kRegexMemoryBytes = 4 << 20;
constexpr uint8_t kYes = 1;
constexpr uint8_t kNo = 2;
// Where a device stands, plus 1 (0 is "not looked at").
constexpr uint8_t kPlain = 1;
constexpr uint8_t kBelow = 2;    // the IO is counted further up too
constexpr uint8_t kStacked = 4;  // and further down

absl::Status CheckCount(int count, const char* field) {
  if (count <= kMaxFilterValues) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "filter.", field, " has ", count, " values; at most ", kMaxFilterValues, " are taken"));
}

template <typename Values>
void InternAll(const Values& values, Names* names, absl::flat_hash_set<NameId>* out) {
  for (const std::string& value : values) out->insert(names->Intern(value));
}

bool Matches(const RE2& regex, const std::string& text) { return RE2::PartialMatch(text, regex); }

}  // namespace

absl::StatusOr<std::shared_ptr<const RE2>> CompileRegex(std::string_view regex,
                                                        std::string_view field) {
  if (regex.empty()) return std::shared_ptr<const RE2>();
  if (regex.size() > kMaxRegexBytes) {
    return absl::InvalidArgumentError(absl::StrCat(ToAbsl(field), ": the regular expression has ",
                                                   regex.size(), " bytes; at most ", kMaxRegexBytes,
                                                   " are taken"));
  }
  RE2::Options options;
  options.set_log_errors(false);
  options.set_never_capture(true);
  options.set_max_mem(kRegexMemoryBytes);
  auto compiled =
      std::make_shared<const RE2>(re2::StringPiece(regex.data(), regex.size()), options);
  if (!compiled->ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToAbsl(field), ": bad regular expression: ", compiled->error(),
                     "; the syntax is that of RE2 (github.com/google/re2/wiki/Syntax)"));
  }
  return compiled;
}

absl::StatusOr<RowFilter> RowFilter::Compile(const v1::Filter& filter, v1::Side side,
                                             const ReadView& view, Names* names) {
  for (absl::Status s :
       {CheckCount(filter.comms_size(), "comms"), CheckCount(filter.devices_size(), "devices"),
        CheckCount(filter.intents_size(), "intents"), CheckCount(filter.reasons_size(), "reasons"),
        CheckCount(filter.operations_size(), "operations"),
        CheckCount(filter.confidences_size(), "confidences")}) {
    if (!s.ok()) return s;
  }
  RowFilter out;
  out.issuer_ = side == v1::SIDE_ISSUER;
  if (!v1::Layer_IsValid(filter.layer())) {
    return absl::InvalidArgumentError(
        absl::StrCat("filter.layer: there is no layer ", static_cast<int>(filter.layer())));
  }
  if (filter.layer() != v1::LAYER_UNSPECIFIED) {
    out.layer_ = filter.layer();
  } else if (filter.devices_size() > 0) {
    // Who names a device means what that device did.
    out.layer_ = v1::LAYER_ANY;
  }
  InternAll(filter.comms(), names, &out.comms_);
  InternAll(filter.devices(), names, &out.devices_);
  InternAll(filter.reasons(), names, &out.reasons_);
  for (int operation : filter.operations()) {
    if (!v1::Operation_IsValid(operation)) {
      return absl::InvalidArgumentError(
          absl::StrCat("filter.operations: there is no operation ", operation));
    }
    out.operations_ |= 1u << operation;
  }
  for (int confidence : filter.confidences()) {
    if (!v1::Confidence_IsValid(confidence)) {
      return absl::InvalidArgumentError(
          absl::StrCat("filter.confidences: there is no confidence ", confidence));
    }
    out.confidences_ |= 1u << confidence;
  }
  for (const std::string& id : filter.intents()) {
    absl::StatusOr<IntentNumber> number = FindIntent(view, id);
    if (!number.ok()) return number.status();
    out.intents_.push_back(*number);
  }
  std::sort(out.intents_.begin(), out.intents_.end());
  out.intents_.erase(std::unique(out.intents_.begin(), out.intents_.end()), out.intents_.end());
  auto cgroup = CompileRegex(filter.cgroup_regex(), "filter.cgroup_regex");
  if (!cgroup.ok()) return cgroup.status();
  out.cgroup_regex_ = *std::move(cgroup);
  auto file = CompileRegex(filter.file_regex(), "filter.file_regex");
  if (!file.ok()) return file.status();
  out.file_regex_ = *std::move(file);
  out.all_pass_ = out.comms_.empty() && out.devices_.empty() && out.reasons_.empty() &&
                  out.operations_ == 0 && out.confidences_ == 0 && out.intents_.empty() &&
                  out.cgroup_regex_ == nullptr && out.file_regex_ == nullptr;
  return out;
}

bool RowFilter::Tester::InLayer(uint32_t number) {
  const uint8_t place = layers_.Get(number, [this](uint32_t n) -> uint8_t {
    auto device = names_->Device(n);
    if (device == nullptr) return kPlain;
    return kPlain | (device->top().empty() ? 0 : kBelow) | (device->stacked() ? kStacked : 0);
  });
  if (place == kPlain) return true;
  stacked_devices_ = true;
  if (filter_->layer_ == v1::LAYER_TOP) return (place & kBelow) == 0;
  if (filter_->layer_ == v1::LAYER_LEAF) return (place & kStacked) == 0;
  return true;
}

bool RowFilter::Tester::Passes(const BlockRow& row) {
  const RowFilter& f = *filter_;
  if (!InLayer(row.device)) return false;
  if (f.all_pass_) return true;
  if (f.operations_ != 0 && (f.operations_ >> row.operation & 1) == 0) return false;
  if (f.confidences_ != 0 && (f.confidences_ >> row.confidence & 1) == 0) return false;
  if (!f.intents_.empty() &&
      !std::binary_search(f.intents_.begin(), f.intents_.end(),
                          f.issuer_ ? row.issuer_intent : row.dirtier_intent)) {
    return false;
  }
  if (!f.comms_.empty() || f.cgroup_regex_ != nullptr) {
    auto test = [&](uint32_t actor) {
      if (!f.comms_.empty() && !f.comms_.contains(names_->Comm(actor))) return kNo;
      if (f.cgroup_regex_ != nullptr &&
          !Matches(*f.cgroup_regex_, names_->Text(names_->Cgroup(actor)))) {
        return kNo;
      }
      return kYes;
    };
    if (actors_.Get(f.issuer_ ? row.issuer_actor : row.dirtier_actor, test) == kNo) return false;
  }
  if (!f.devices_.empty()) {
    auto test = [&](uint32_t number) {
      auto device = names_->Device(number);
      if (device == nullptr) return f.devices_.contains(0) ? kYes : kNo;
      for (const std::string* name :
           {&device->name(), &device->disk(), &device->alias(), &device->persistent_id()}) {
        if (!name->empty() && f.devices_.contains(names_->Intern(*name))) return kYes;
      }
      return kNo;
    };
    if (devices_.Get(row.device, test) == kNo) return false;
  }
  if (!f.reasons_.empty()) {
    auto test = [&](uint32_t intent) {
      return f.reasons_.contains(names_->Modifier(intent)) ? kYes : kNo;
    };
    if (reasons_.Get(row.dirtier_intent, test) == kNo) return false;
  }
  if (f.file_regex_ != nullptr) {
    auto test = [&](uint32_t file) {
      return Matches(*f.file_regex_, names_->Path(file)) ? kYes : kNo;
    };
    if (files_.Get(row.file, test) == kNo) return false;
  }
  return true;
}

}  // namespace fleetblame::aggregator
