// SPDX-License-Identifier: Apache-2.0
#include "aggregator/query/grouping.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "aggregator/query/dimension_text.h"
#include "aggregator/query/intent_lookup.h"

namespace fleetblame::aggregator {
namespace {

bool IsDevice(v1::Dimension dimension) {
  return dimension == v1::DIMENSION_DEVICE || dimension == v1::DIMENSION_PARTITION ||
         dimension == v1::DIMENSION_TOP_DEVICE;
}

// Whether the key part is a NameId of a text.
bool IsText(v1::Dimension dimension) {
  return dimension == v1::DIMENSION_COMM || dimension == v1::DIMENSION_CGROUP ||
         IsDevice(dimension) || dimension == v1::DIMENSION_REASON;
}

}  // namespace

absl::StatusOr<Grouping> Grouping::Make(const google::protobuf::RepeatedField<int>& by,
                                        v1::Side side) {
  std::vector<v1::Dimension> dimensions;
  for (int value : by) {
    auto dimension = static_cast<v1::Dimension>(value);
    if (!v1::Dimension_IsValid(value) || dimension == v1::DIMENSION_UNSPECIFIED) {
      return absl::InvalidArgumentError(absl::StrCat("by: there is no dimension ", value));
    }
    if (std::find(dimensions.begin(), dimensions.end(), dimension) != dimensions.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("by: dimension ", DimensionText(dimension), " stands there twice"));
    }
    dimensions.push_back(dimension);
  }
  if (dimensions.size() > kMaxDimensions) {
    return absl::InvalidArgumentError(
        absl::StrCat("by: at most ", kMaxDimensions, " dimensions are taken at once"));
  }
  return Grouping(std::move(dimensions), side);
}

Grouping::Grouping(std::vector<v1::Dimension> by, v1::Side side)
    : by_(std::move(by)), issuer_(side == v1::SIDE_ISSUER) {}

bool Grouping::Has(v1::Dimension dimension) const {
  return std::find(by_.begin(), by_.end(), dimension) != by_.end();
}

absl::StatusOr<v1::DimensionValue> DescribeIntent(IntentNumber number, const ReadView& view,
                                                  Names* names) {
  v1::DimensionValue value;
  value.set_dimension(v1::DIMENSION_INTENT);
  std::shared_ptr<const v1::Intent> intent = names->Intent(number);
  if (intent == nullptr) return value;
  value.set_text(IntentHex(*intent));
  *value.mutable_frames() = intent->frames();
  value.set_modifier(intent->modifier());
  absl::StatusOr<std::string> short_id = ShortIntentId(view, value.text());
  if (!short_id.ok()) return short_id.status();
  value.set_short_id(*std::move(short_id));
  return value;
}

absl::StatusOr<std::vector<v1::DimensionValue>> Grouping::Describe(const GroupKey& key,
                                                                   const HostSet& hosts,
                                                                   const ReadView& view,
                                                                   Names* names) const {
  std::vector<v1::DimensionValue> values;
  for (size_t i = 0; i < by_.size(); ++i) {
    const uint32_t part = key.parts[i];
    v1::DimensionValue value;
    value.set_dimension(by_[i]);
    switch (by_[i]) {
      case v1::DIMENSION_HOST:
        if (const HostRecord* host = hosts.Find(part); host != nullptr) {
          value.set_text(NameOf(*host));
          value.set_host_id(host->host_id);
        }
        break;
      case v1::DIMENSION_OPERATION:
        value.set_text(OperationText(static_cast<v1::Operation>(part)));
        break;
      case v1::DIMENSION_CONFIDENCE:
        value.set_text(ConfidenceText(static_cast<v1::Confidence>(part)));
        break;
      case v1::DIMENSION_FILE:
        if (part != 0) {
          *value.mutable_file() = names->FileOf(part);
          value.set_text(value.file().path());
        }
        break;
      case v1::DIMENSION_INTENT: {
        absl::StatusOr<v1::DimensionValue> intent = DescribeIntent(part, view, names);
        if (!intent.ok()) return intent.status();
        value = *std::move(intent);
        break;
      }
      default:
        value.set_text(names->Text(part));
        if (IsDevice(by_[i]) && part != 0) *value.mutable_device() = names->DeviceOf(part);
        break;
    }
    values.push_back(std::move(value));
  }
  return values;
}

bool Grouping::Less(const GroupKey& a, const GroupKey& b, const Names& names) const {
  for (size_t i = 0; i < by_.size(); ++i) {
    if (a.parts[i] == b.parts[i]) continue;
    if (IsText(by_[i])) return names.Text(a.parts[i]) < names.Text(b.parts[i]);
    if (by_[i] == v1::DIMENSION_FILE) {
      std::string left = names.FileOf(a.parts[i]).path();
      std::string right = names.FileOf(b.parts[i]).path();
      if (left != right) return left < right;
    }
    return a.parts[i] < b.parts[i];
  }
  return false;
}

GroupKey KeyMaker::Make(HostNumber host, const BlockRow& row) {
  GroupKey key;
  size_t at = 0;
  const bool issuer = grouping_->issuer();
  for (v1::Dimension dimension : grouping_->by()) {
    uint32_t& part = key.parts[at++];
    switch (dimension) {
      case v1::DIMENSION_HOST:
        part = host;
        break;
      case v1::DIMENSION_COMM:
        part = comms_.Get(issuer ? row.issuer_actor : row.dirtier_actor,
                          [this](uint32_t n) { return names_->Comm(n); });
        break;
      case v1::DIMENSION_CGROUP:
        part = cgroups_.Get(issuer ? row.issuer_actor : row.dirtier_actor,
                            [this](uint32_t n) { return names_->Cgroup(n); });
        break;
      case v1::DIMENSION_DEVICE:
        part = devices_.Get(row.device, [this](uint32_t n) { return names_->DeviceName(n); });
        break;
      case v1::DIMENSION_PARTITION:
        part = partitions_.Get(row.device, [this](uint32_t n) { return names_->PartitionName(n); });
        break;
      case v1::DIMENSION_TOP_DEVICE:
        part =
            top_devices_.Get(row.device, [this](uint32_t n) { return names_->TopDeviceName(n); });
        break;
      case v1::DIMENSION_OPERATION:
        part = static_cast<uint32_t>(row.operation);
        break;
      case v1::DIMENSION_INTENT:
        part = issuer ? row.issuer_intent : row.dirtier_intent;
        break;
      case v1::DIMENSION_REASON:
        part = reasons_.Get(row.dirtier_intent, [this](uint32_t n) { return names_->Modifier(n); });
        break;
      case v1::DIMENSION_FILE:
        part = files_.Get(row.file, [this](uint32_t n) { return names_->FileGroup(n); });
        break;
      case v1::DIMENSION_CONFIDENCE:
        part = static_cast<uint32_t>(row.confidence);
        break;
      default:
        break;
    }
  }
  return key;
}

}  // namespace fleetblame::aggregator
