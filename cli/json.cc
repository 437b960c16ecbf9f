// SPDX-License-Identifier: Apache-2.0
#include "cli/json.h"

#include "absl/strings/escaping.h"
#include "absl/time/time.h"
#include "cli/histogram_proto.h"
#include "cli/names.h"
#include "cli/sampling_error.h"
#include "cli/terminal.h"
#include "common/histogram.h"

namespace fleetblame::cli {
namespace {

void AddQuantiles(const char* name, const v1::Histogram& histogram, Json* out) {
  SparseHistogram sparse = ToSparse(histogram);
  for (auto [suffix, q] : {std::pair{"_p50_ns", 0.5}, {"_p90_ns", 0.9}, {"_p99_ns", 0.99}}) {
    (*out)[std::string(name) + suffix] = sparse.empty() ? Json() : Json(sparse.QuantileNs(q));
  }
}

void AddDimension(const v1::DimensionValue& value, Json* out) {
  std::string name(DimensionName(value.dimension()));
  (*out)[name] = value.text().empty() ? Json() : Json(value.text());
  switch (value.dimension()) {
    case v1::DIMENSION_HOST:
      (*out)["host_id"] = value.host_id();
      break;
    case v1::DIMENSION_INTENT:
      (*out)["frames"] = std::vector<std::string>(value.frames().begin(), value.frames().end());
      (*out)["reason"] = value.modifier();
      break;
    case v1::DIMENSION_FILE:
      if (value.has_file()) {
        (*out)["inode"] = value.file().inode();
        (*out)["generation"] = value.file().generation();
        (*out)["filesystem"] =
            std::to_string(value.file().fs_major()) + ":" + std::to_string(value.file().fs_minor());
      }
      break;
    case v1::DIMENSION_DEVICE:
    case v1::DIMENSION_PARTITION:
      if (value.has_device()) (*out)[name + "_info"] = DeviceJson(value.device());
      break;
    default:
      break;
  }
}

}  // namespace

Json DeviceJson(const v1::Device& device) {
  auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  Json json;
  json["disk"] = text(device.disk());
  json["alias"] = text(device.alias());
  json["model"] = text(device.model());
  json["persistent_id"] = text(device.persistent_id());
  json["rotational"] = device.has_rotational() ? Json(device.rotational()) : Json();
  json["stacked"] = device.stacked();
  json["lower"] = std::vector<std::string>(device.lower().begin(), device.lower().end());
  return json;
}

std::string Hex(const std::string& bytes) { return absl::BytesToHexString(bytes); }

Json TimeJson(uint64_t unix_ns) {
  if (unix_ns == 0) return nullptr;
  return absl::FormatTime(absl::RFC3339_full, absl::FromUnixNanos(static_cast<int64_t>(unix_ns)),
                          absl::UTCTimeZone());
}

Json GapJson(const v1::Gap& gap) {
  Json json;
  json["start"] = TimeJson(gap.start_unix_ns());
  json["end"] = TimeJson(gap.end_unix_ns());
  json["cause"] = gap.cause();
  json["batches"] = gap.has_batches() ? Json(gap.batches()) : Json();
  json["bytes"] = gap.has_bytes() ? Json(gap.bytes()) : Json();
  return json;
}

Json SummaryJson(const v1::Summary& s) {
  Json json;
  json["start"] = TimeJson(s.start_unix_ns());
  json["end"] = TimeJson(s.end_unix_ns());
  json["start_unix_ns"] = s.start_unix_ns();
  json["end_unix_ns"] = s.end_unix_ns();
  json["resolution_ns"] = s.resolution_ns();
  json["hosts_matched"] = s.hosts_matched();
  json["hosts_with_data"] = s.hosts_with_data();
  json["read_bytes"] = s.read_bytes();
  json["written_bytes"] = s.written_bytes();
  json["bytes_by_confidence"] = Json::object();
  for (int c = v1::Confidence_MIN + 1; c <= v1::Confidence_MAX; ++c) {
    std::string name(ConfidenceName(static_cast<v1::Confidence>(c)));
    auto at = s.bytes_by_confidence().find(name);
    json["bytes_by_confidence"][name] = at == s.bytes_by_confidence().end() ? 0 : at->second;
  }
  json["layer"] = LayerName(s.layer());
  json["stacked_devices"] = s.stacked_devices();
  json["gaps_total"] = s.gaps_total();
  json["gaps"] = Json::array();
  for (const v1::HostGap& gap : s.gaps()) {
    Json entry = GapJson(gap.gap());
    entry["host"] = gap.hostname();
    entry["host_id"] = gap.host_id();
    json["gaps"].push_back(std::move(entry));
  }
  json["skewed_hosts"] = std::vector<std::string>(s.skewed_hosts().begin(), s.skewed_hosts().end());
  json["sample_weight"] = SampleWeight(s);
  json["losses"] = Json::object();
  for (const auto& [name, count] :
       std::map<std::string, uint64_t>(s.losses().begin(), s.losses().end())) {
    json["losses"][name] = count;
  }
  json["rows_scanned"] = s.rows_scanned();
  json["warnings"] = std::vector<std::string>(s.warnings().begin(), s.warnings().end());
  return json;
}

Json HistogramJson(const v1::Histogram& histogram) {
  Json json = Json::array();
  const SparseHistogram sparse = ToSparse(histogram);
  for (const auto& [bucket, count] : sparse.entries()) {
    Json entry;
    entry["lower_ns"] = HistogramLowerNs(bucket);
    entry["upper_ns"] = bucket == kHistogramBuckets - 1 ? Json() : Json(HistogramUpperNs(bucket));
    entry["count"] = count;
    json.push_back(std::move(entry));
  }
  return json;
}

Json MetricsJson(const v1::Metrics& m) {
  Json json;
  json["ios"] = m.ios();
  json["bytes"] = m.bytes();
  json["read_bytes"] = m.read_bytes();
  json["written_bytes"] = m.written_bytes();
  json["wait_ns"] = m.wait_ns();
  AddQuantiles("wait", m.wait(), &json);
  json["io_ns"] = m.io_ns();
  AddQuantiles("io", m.io(), &json);
  json["errors"] = m.errors();
  json["requeues"] = m.requeues();
  json["hosts"] = m.hosts() == 0 ? Json() : Json(m.hosts());
  json["estimated_ios"] = m.estimated_ios();
  json["wait_histogram"] = HistogramJson(m.wait());
  json["io_histogram"] = HistogramJson(m.io());
  return json;
}

Json KeyJson(const google::protobuf::RepeatedPtrField<v1::DimensionValue>& key) {
  Json json = Json::object();
  for (const v1::DimensionValue& value : key) AddDimension(value, &json);
  return json;
}

Json IntentJson(const v1::DimensionValue& intent) {
  Json json = Json::object();
  AddDimension(intent, &json);
  json["short_id"] = intent.short_id();
  return json;
}

Json RowJson(const v1::TopResponse::Row& row) {
  Json json = KeyJson(row.key());
  json.update(MetricsJson(row.metrics()));
  return json;
}

void Write(const Json& json, std::ostream& out, int indent) {
  // On a terminal all that is not ASCII is escaped: it may be what turns the direction of writing.
  const bool ascii = ShownOnTerminal(out);
  out << json.dump(indent, ' ', ascii, Json::error_handler_t::replace) << "\n";
}

}  // namespace fleetblame::cli
