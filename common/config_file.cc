// SPDX-License-Identifier: Apache-2.0
#include "common/config_file.h"

#include <filesystem>
#include <system_error>

namespace fleetblame {

std::string CheckConfigFile(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  // The library has a sentence of its own for files that it cannot open.
  if (!std::filesystem::exists(status)) return "";
  if (!std::filesystem::is_regular_file(status)) return path + " is not a regular file";
  const auto bytes = std::filesystem::file_size(path, error);
  if (!error && bytes > kMaxConfigFileBytes) return path + " is larger than 1 MiB";
  return "";
}

}  // namespace fleetblame
