// SPDX-License-Identifier: Apache-2.0
//
// The flags by which `top` and `series` choose what to count and how to group it. One thread.
#ifndef CLI_FILTER_FLAGS_H_
#define CLI_FILTER_FLAGS_H_

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/fleetblame/v1/query.pb.h"

namespace fleetblame::cli {

struct FilterFlags {
  std::string by;
  bool issuer = false;
  bool dirtier = false;  // the default, said aloud
  std::string order = "bytes";
  std::vector<std::string> comms, devices, operations, intents, reasons, confidences;
  std::string cgroup, file, layer;
};

void AddFilterFlags(CLI::App* command, FilterFlags* flags);

// Fills by, side, filter and order_by. INVALID_ARGUMENT names the flag and the words it takes.
template <typename Request>
absl::Status Apply(const FilterFlags& flags, Request* request);

// The parts of Apply.
absl::Status ParseBy(const std::string& list, google::protobuf::RepeatedField<int>* by);
absl::Status ParseFilter(const FilterFlags& flags, v1::Filter* filter);
absl::StatusOr<v1::OrderBy> ParseOrderFlag(const FilterFlags& flags);

template <typename Request>
absl::Status Apply(const FilterFlags& flags, Request* request) {
  if (absl::Status s = ParseBy(flags.by, request->mutable_by()); !s.ok()) return s;
  if (absl::Status s = ParseFilter(flags, request->mutable_filter()); !s.ok()) return s;
  auto order = ParseOrderFlag(flags);
  if (!order.ok()) return order.status();
  request->set_order_by(*order);
  request->set_side(flags.issuer ? v1::SIDE_ISSUER : v1::SIDE_DIRTIER);
  return absl::OkStatus();
}

}  // namespace fleetblame::cli

#endif  // CLI_FILTER_FLAGS_H_
