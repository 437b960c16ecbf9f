// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/rocks_status.h"

#include "absl/strings/str_cat.h"
#include "common/absl_view.h"

namespace fleetblame::aggregator {

absl::Status FromRocks(const rocksdb::Status& status, std::string_view doing) {
  if (status.ok()) return absl::OkStatus();
  std::string text = absl::StrCat(ToAbsl(doing), ": ", status.ToString());
  if (status.IsNoSpace()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(text, "; free space on that filesystem, writing goes on by itself then"));
  }
  if (status.IsCorruption()) return absl::DataLossError(text);
  if (status.IsNotFound()) return absl::NotFoundError(text);
  return absl::UnavailableError(text);
}

}  // namespace fleetblame::aggregator
