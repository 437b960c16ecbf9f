// SPDX-License-Identifier: Apache-2.0
#include "common/version.h"

#include "absl/strings/str_cat.h"
#include "common/absl_view.h"

namespace fleetblame {
namespace {

constexpr std::string_view kMachine =
#if defined(__x86_64__)
    "x86_64";
#elif defined(__aarch64__)
    "aarch64";
#else
    "other";
#endif

constexpr std::string_view kCompiler =
#if defined(__clang__)
    "clang " __clang_version__;
#else
    "gcc " __VERSION__;
#endif

constexpr std::string_view kMode =
#if defined(__SANITIZE_ADDRESS__)
    "asan";
#elif defined(__SANITIZE_THREAD__)
    "tsan";
#elif defined(NDEBUG)
        "optimized";
#else
            "debug";
#endif

}  // namespace

std::string VersionLine(std::string_view program) {
  return absl::StrCat(ToAbsl(program), " ", ToAbsl(kVersion), " (", ToAbsl(kMachine), ", ",
                      ToAbsl(kCompiler), ", ", ToAbsl(kMode), ")");
}

}  // namespace fleetblame
