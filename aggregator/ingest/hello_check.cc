// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/hello_check.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kMaxHostIdBytes = 64;
constexpr size_t kMaxTextBytes = 256;
constexpr int kMaxLabels = 64;
constexpr size_t kMaxLabelNameBytes = 128;
constexpr size_t kMaxLabelValueBytes = 1024;

absl::Status Bad(std::string what) { return absl::FailedPreconditionError("Hello: " + what); }

bool IsHostId(const std::string& id) {
  return !id.empty() && id.size() <= kMaxHostIdBytes &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

bool HasControlCharacters(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char c) { return absl::ascii_iscntrl(c); });
}

absl::Status CheckText(const char* name, const std::string& text) {
  if (text.size() > kMaxTextBytes) {
    return Bad(absl::StrCat(name, " has ", text.size(), " bytes; at most ", kMaxTextBytes));
  }
  if (HasControlCharacters(text)) return Bad(absl::StrCat(name, " has control characters"));
  return absl::OkStatus();
}

absl::Status CheckLabels(const google::protobuf::Map<std::string, std::string>& labels) {
  if (labels.size() > kMaxLabels) {
    return Bad(absl::StrCat(labels.size(), " labels; at most ", kMaxLabels));
  }
  for (const auto& [name, value] : labels) {
    if (name.empty() || name.size() > kMaxLabelNameBytes || HasControlCharacters(name)) {
      return Bad(absl::StrCat("a label's name must have 1 to ", kMaxLabelNameBytes,
                              " printable characters"));
    }
    if (value.size() > kMaxLabelValueBytes || HasControlCharacters(value)) {
      return Bad(absl::StrCat("the value of label ", name, " must have at most ",
                              kMaxLabelValueBytes, " printable characters"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckHello(const v1::Hello& hello) {
  if (hello.protocol_version() != kProtocolVersion) {
    return Bad(absl::StrCat("protocol version ", hello.protocol_version(), " is not spoken here, ",
                            kProtocolVersion, " is; install matching releases"));
  }
  if (!IsHostId(hello.host_id())) {
    return Bad("host_id must be 1 to 64 characters of [A-Za-z0-9._-]");
  }
  if (hello.spool_epoch() == 0) return Bad("spool_epoch is missing");
  if (hello.first_spooled_seq() > hello.last_spooled_seq()) {
    return Bad(absl::StrCat("first_spooled_seq ", hello.first_spooled_seq(),
                            " is after last_spooled_seq ", hello.last_spooled_seq()));
  }
  if (hello.last_spooled_seq() != 0 && hello.first_spooled_seq() == 0) {
    return Bad("sequence numbers begin with 1");
  }
  for (auto [name, text] :
       {std::pair{"hostname", &hello.hostname()}, std::pair{"boot_id", &hello.boot_id()},
        std::pair{"agent_version", &hello.agent_version()},
        std::pair{"kernel_release", &hello.kernel_release()},
        std::pair{"tracer", &hello.tracer()}}) {
    if (absl::Status status = CheckText(name, *text); !status.ok()) return status;
  }
  return CheckLabels(hello.labels());
}

}  // namespace fleetblame::aggregator
