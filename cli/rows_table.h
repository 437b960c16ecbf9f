// SPDX-License-Identifier: Apache-2.0
//
// Groups with their metrics, as `top` and `intent` show them: table, CSV. Pure functions but for
// the stream.
#ifndef CLI_ROWS_TABLE_H_
#define CLI_ROWS_TABLE_H_

#include <ostream>
#include <string>
#include <vector>

#include "cli/terminal.h"
#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::cli {

// An intent in a few words: "ext4_da_write_end ← pwrite64".
std::string FramesSummary(const google::protobuf::RepeatedPtrField<std::string>& frames);

// What a cell of this dimension shows ("-" for unknown or none).
std::string DimensionText(const v1::DimensionValue& value);

void PrintRowsTable(const std::vector<v1::Dimension>& by,
                    const google::protobuf::RepeatedPtrField<v1::TopResponse::Row>& rows,
                    const v1::Summary& summary, const Terminal& terminal, std::ostream& out);

void PrintRowsCsv(const std::vector<v1::Dimension>& by,
                  const google::protobuf::RepeatedPtrField<v1::TopResponse::Row>& rows,
                  std::ostream& out);

// Quantile of a histogram for people; "-" when it is empty.
std::string Quantile(const v1::Histogram& histogram, double q);

}  // namespace fleetblame::cli

#endif  // CLI_ROWS_TABLE_H_
