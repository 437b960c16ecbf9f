// SPDX-License-Identifier: Apache-2.0
#include "cli/rows_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/bars.h"
#include "cli/histogram_proto.h"
#include "cli/names.h"
#include "cli/sampling_error.h"
#include "cli/table.h"
#include "cli/units.h"
#include "common/absl_view.h"
#include "common/intent/summary.h"

namespace fleetblame::cli {
namespace {

std::string Upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

int MinWidth(v1::Dimension dimension) {
  switch (dimension) {
    case v1::DIMENSION_INTENT:
      return 24;
    case v1::DIMENSION_CGROUP:
    case v1::DIMENSION_FILE:
    case v1::DIMENSION_HOST:
      return 12;
    default:
      return 0;
  }
}

// Read and write columns are shown only where they say something.
struct Shown {
  bool read = false;
  bool written = false;
  bool other = false;  // bytes that are neither
  bool errors = false;
  bool estimated = false;
};

Shown Look(const google::protobuf::RepeatedPtrField<v1::TopResponse::Row>& rows) {
  Shown shown;
  for (const auto& row : rows) {
    const v1::Metrics& m = row.metrics();
    shown.read |= m.read_bytes() > 0;
    shown.written |= m.written_bytes() > 0;
    shown.other |= m.bytes() > m.read_bytes() + m.written_bytes();
    shown.errors |= m.errors() > 0 || m.requeues() > 0;
    shown.estimated |= m.estimated_ios() > 0;
  }
  if (!shown.read && !shown.other) shown.written = true;
  return shown;
}

std::vector<Table::Column> Columns(const std::vector<v1::Dimension>& by, const Shown& shown,
                                   bool many_hosts) {
  std::vector<Table::Column> columns;
  if (shown.written) columns.push_back({.title = "WRITTEN"});
  if (shown.read) columns.push_back({.title = "READ"});
  if (shown.other) columns.push_back({.title = "BYTES"});
  columns.push_back({.title = "IOS"});
  if (shown.estimated) columns.push_back({.title = "95% CI"});
  columns.push_back({.title = "WAIT p50", .dispensable = 3});
  columns.push_back({.title = "p90", .dispensable = 7});
  columns.push_back({.title = "p99", .dispensable = 2});
  columns.push_back({.title = "IO p50", .dispensable = 3});
  columns.push_back({.title = "p90", .dispensable = 7});
  columns.push_back({.title = "p99", .dispensable = 2});
  columns.push_back({.title = "1µs…IO…17s", .align = Table::Align::kLeft, .dispensable = 5});
  if (shown.errors) columns.push_back({.title = "ERRORS"});
  if (many_hosts) columns.push_back({.title = "HOSTS", .dispensable = 4});
  for (v1::Dimension dimension : by) {
    columns.push_back({.title = Upper(DimensionName(dimension)),
                       .align = Table::Align::kLeft,
                       .min_width = MinWidth(dimension)});
  }
  return columns;
}

}  // namespace

std::string Quantile(const v1::Histogram& histogram, double q) {
  SparseHistogram sparse = ToSparse(histogram);
  return sparse.empty() ? "-" : HumanNs(sparse.QuantileNs(q));
}

std::string FramesSummary(const google::protobuf::RepeatedPtrField<std::string>& frames) {
  std::vector<std::string_view> views(frames.begin(), frames.end());
  return IntentSummary(views);
}

std::string DimensionText(const v1::DimensionValue& value) {
  if (value.dimension() == v1::DIMENSION_INTENT) {
    if (value.text().empty()) return "-";
    std::string text = absl::StrCat(value.short_id(), "  ", FramesSummary(value.frames()));
    if (!value.modifier().empty()) absl::StrAppend(&text, " (", value.modifier(), ")");
    return text;
  }
  if (!value.device().alias().empty() && value.device().alias() != value.text()) {
    return absl::StrCat(value.text(), " (", value.device().alias(), ")");
  }
  if (!value.text().empty()) return value.text();
  if (value.dimension() == v1::DIMENSION_FILE && value.file().inode() != 0) {
    return absl::StrCat("inode ", value.file().inode());
  }
  return "-";
}

void PrintRowsTable(const std::vector<v1::Dimension>& by,
                    const google::protobuf::RepeatedPtrField<v1::TopResponse::Row>& rows,
                    const v1::Summary& summary, const Terminal& terminal, std::ostream& out) {
  const uint32_t hosts_with_data = summary.hosts_with_data();
  Shown shown = Look(rows);
  bool many_hosts =
      hosts_with_data > 1 && std::find(by.begin(), by.end(), v1::DIMENSION_HOST) == by.end();
  Table table(Columns(by, shown, many_hosts));
  for (const auto& row : rows) {
    const v1::Metrics& m = row.metrics();
    std::vector<std::string> cells;
    if (shown.written) cells.push_back(HumanBytes(static_cast<double>(m.written_bytes())));
    if (shown.read) cells.push_back(HumanBytes(static_cast<double>(m.read_bytes())));
    if (shown.other) cells.push_back(HumanBytes(static_cast<double>(m.bytes())));
    cells.push_back(HumanCount(m.ios()));
    if (shown.estimated) cells.push_back(ErrorText(m, SampleWeight(summary)));
    for (const v1::Histogram* histogram : {&m.wait(), &m.io()}) {
      for (double q : {0.5, 0.9, 0.99}) cells.push_back(Quantile(*histogram, q));
    }
    cells.push_back(HistogramSpark(m.io()));
    if (shown.errors) cells.push_back(HumanCount(m.errors()));
    if (many_hosts) {
      // 0: the answer came from sums over the fleet, which do not know.
      cells.push_back(m.hosts() == 0 ? "-" : absl::StrCat(m.hosts(), "/", hosts_with_data));
    }
    for (const auto& value : row.key()) cells.push_back(DimensionText(value));
    table.AddRow(std::move(cells));
  }
  table.Print(terminal, out);
}

void PrintRowsCsv(const std::vector<v1::Dimension>& by,
                  const google::protobuf::RepeatedPtrField<v1::TopResponse::Row>& rows,
                  std::ostream& out) {
  std::vector<std::string> header;
  for (v1::Dimension dimension : by) header.emplace_back(DimensionName(dimension));
  for (const char* name : {"bytes", "read_bytes", "written_bytes", "ios", "wait_ns", "wait_p50_ns",
                           "wait_p90_ns", "wait_p99_ns", "io_ns", "io_p50_ns", "io_p90_ns",
                           "io_p99_ns", "errors", "requeues", "hosts", "estimated_ios"}) {
    header.emplace_back(name);
  }
  WriteCsvRecord(header, out);
  for (const auto& row : rows) {
    std::vector<std::string> fields;
    for (const auto& value : row.key()) fields.push_back(value.text());
    const v1::Metrics& m = row.metrics();
    auto add = [&](uint64_t value) { fields.push_back(absl::StrCat(value)); };
    auto add_latency = [&](uint64_t sum, const v1::Histogram& histogram) {
      add(sum);
      SparseHistogram sparse = ToSparse(histogram);
      for (double q : {0.5, 0.9, 0.99}) {
        fields.push_back(sparse.empty() ? "" : absl::StrCat(sparse.QuantileNs(q)));
      }
    };
    add(m.bytes());
    add(m.read_bytes());
    add(m.written_bytes());
    add(m.ios());
    add_latency(m.wait_ns(), m.wait());
    add_latency(m.io_ns(), m.io());
    add(m.errors());
    add(m.requeues());
    fields.push_back(m.hosts() == 0 ? "" : absl::StrCat(m.hosts()));
    add(m.estimated_ios());
    WriteCsvRecord(fields, out);
  }
}

}  // namespace fleetblame::cli
