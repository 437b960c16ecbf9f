// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/row_codec.h"

#include <google/protobuf/io/coded_stream.h>

namespace fleetblame::aggregator {
namespace {

constexpr char kEncodingProto = 1;

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

}  // namespace

std::string EncodeRows(const v1::RowBlock& rows, uint64_t span_ns) {
  uint8_t head[1 + 10];
  head[0] = static_cast<uint8_t>(kEncodingProto);
  uint8_t* end = CodedOutputStream::WriteVarint64ToArray(span_ns, head + 1);
  std::string out;
  size_t body = rows.ByteSizeLong();
  out.reserve(static_cast<size_t>(end - head) + body);
  out.assign(reinterpret_cast<const char*>(head), static_cast<size_t>(end - head));
  rows.AppendPartialToString(&out);
  return out;
}

absl::Status DecodeRows(std::string_view value, v1::RowBlock* rows, uint64_t* span_ns) {
  if (value.empty() || value.front() != kEncodingProto) {
    return absl::DataLossError("a stored block of rows has an unknown encoding");
  }
  value.remove_prefix(1);
  uint64_t span = 0;
  int shift = 0;
  while (true) {
    if (value.empty() || shift > 63) return absl::DataLossError("a stored block has no length");
    auto byte = static_cast<uint8_t>(value.front());
    value.remove_prefix(1);
    span |= static_cast<uint64_t>(byte & 0x7f) << shift;
    shift += 7;
    if ((byte & 0x80) == 0) break;
  }
  *span_ns = span;
  if (!rows->ParseFromArray(value.data(), static_cast<int>(value.size()))) {
    return absl::DataLossError("a stored block of rows is damaged");
  }
  return absl::OkStatus();
}

}  // namespace fleetblame::aggregator
