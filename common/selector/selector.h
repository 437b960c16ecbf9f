// SPDX-License-Identifier: Apache-2.0
//
// Chooses hosts by label matchers, in the language of Prometheus:
//
//   {role="db", dc=~"fra.*", rack!="7", tier!~"test|dev"}
//
// The braces may be left out, and an empty text (or "{}") chooses every host. A label that a host
// does not have counts as empty. Regular expressions are RE2 and must match the whole value; a dot
// matches any character. Values stand in "…" or '…' with backslash escapes, or in `…` as they are.
// A label name that is not a plain word may be quoted too: {"k8s.io/zone"="a"}.
//
// Two names are not labels but always known, and hide labels of the same name:
//   host    the host id or the hostname: positive matchers want one of the two to match, negative
//           ones want neither
//   kernel  the kernel release
//
// Errors: INVALID_ARGUMENT with the position (counted from 1), what is wrong there and what would
// be right. Length, number of matchers, and the size of regular expressions are bounded, so a
// selector from a stranger is safe to parse and to evaluate.
//
// Threading: a Selector is immutable after Parse; use and copy it from any thread.
#ifndef COMMON_SELECTOR_SELECTOR_H_
#define COMMON_SELECTOR_SELECTOR_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace re2 {
class RE2;
}

namespace fleetblame {

inline constexpr size_t kMaxSelectorBytes = 4096;
inline constexpr size_t kMaxSelectorMatchers = 32;
inline constexpr size_t kMaxSelectorRegexBytes = 1024;
// What one compiled expression may take in memory.
inline constexpr int kSelectorRegexMemoryBytes = 1 << 20;

// What a selector is held against. Views; nothing is kept.
struct SelectorTarget {
  std::string_view host_id;
  std::string_view hostname;
  std::string_view kernel_release;
  const std::map<std::string, std::string>* labels = nullptr;
};

class Selector {
 public:
  // Matches everything.
  Selector() = default;

  static absl::StatusOr<Selector> Parse(std::string_view text);

  bool Matches(const SelectorTarget& target) const;
  // Labels alone: `host` and `kernel` are empty then unless the map has them.
  bool Matches(const std::map<std::string, std::string>& labels) const;

  // Whether it chooses every host without looking.
  bool empty() const { return matchers_.empty(); }

  // The selector in its plainest form; parses back to an equal one.
  std::string ToString() const;

 private:
  enum class Op { kEqual, kNotEqual, kMatch, kNoMatch };
  struct Matcher {
    std::string name;
    Op op = Op::kEqual;
    std::string value;
    std::shared_ptr<const re2::RE2> regex;  // for kMatch and kNoMatch

    bool Positive(std::string_view text) const;  // as if the operator were not negated
    bool negated() const { return op == Op::kNotEqual || op == Op::kNoMatch; }
  };
  friend class SelectorParser;

  std::vector<Matcher> matchers_;
};

}  // namespace fleetblame

#endif  // COMMON_SELECTOR_SELECTOR_H_
