// SPDX-License-Identifier: Apache-2.0
#include "common/selector/selector.h"

#include <array>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/absl_view.h"
#include "re2/re2.h"

namespace fleetblame {
namespace {

bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNameChar(char c) { return IsNameStart(c) || (c >= '0' && c <= '9'); }
bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool IsPlainName(std::string_view name) {
  if (name.empty() || !IsNameStart(name[0])) return false;
  for (char c : name) {
    if (!IsNameChar(c)) return false;
  }
  return true;
}

std::string Quote(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    switch (c) {
      case '"':
      case '\\':
        out += '\\';
        out += c;
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        out += c;
    }
  }
  out += '"';
  return out;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string_view LookUp(const std::map<std::string, std::string>* labels, const std::string& name) {
  if (labels == nullptr) return {};
  auto it = labels->find(name);
  return it == labels->end() ? std::string_view() : std::string_view(it->second);
}

}  // namespace

// One pass over the text; the first error ends it.
class SelectorParser {
 public:
  explicit SelectorParser(std::string_view text) : text_(text) {}

  absl::StatusOr<Selector> Run() {
    if (text_.size() > kMaxSelectorBytes) {
      return absl::InvalidArgumentError(absl::StrCat("selector is ", text_.size(),
                                                     " bytes long; at most ", kMaxSelectorBytes,
                                                     " are taken: use a regular expression or a "
                                                     "label that the hosts share"));
    }
    SkipSpace();
    bool braces = Take('{');
    SkipSpace();
    while (!AtEnd() && !(braces && Peek() == '}')) {
      if (absl::Status s = OneMatcher(); !s.ok()) return s;
      SkipSpace();
      if (Take(',')) {
        SkipSpace();
        continue;
      }
      break;
    }
    if (braces && !Take('}')) {
      return Error(AtEnd() ? "the closing } is missing" : "expected , or } after a matcher");
    }
    SkipSpace();
    if (!AtEnd()) {
      return Error(braces ? "nothing may follow the closing }" : "expected , between two matchers");
    }
    return std::move(selector_);
  }

 private:
  using Op = Selector::Op;

  bool AtEnd() const { return at_ == text_.size(); }
  char Peek() const { return text_[at_]; }
  bool Take(char c) {
    if (AtEnd() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void SkipSpace() {
    while (!AtEnd() && IsSpace(text_[at_])) ++at_;
  }

  absl::Status ErrorAt(size_t position, std::string_view what) const {
    std::string near;
    if (position < text_.size()) {
      std::string_view rest = text_.substr(position, 20);
      near = absl::StrCat(" (at \"", absl::Utf8SafeCEscape(ToAbsl(rest)),
                          position + 20 < text_.size() ? "…\")" : "\")");
    }
    return absl::InvalidArgumentError(absl::StrCat("selector: ", ToAbsl(what), " at position ",
                                                   position + 1, near,
                                                   "; an example: {role=\"db\",dc=~\"fra.*\"}"));
  }
  absl::Status Error(std::string_view what) const { return ErrorAt(at_, what); }

  absl::Status OneMatcher() {
    if (selector_.matchers_.size() == kMaxSelectorMatchers) {
      return Error(absl::StrCat("more than ", kMaxSelectorMatchers,
                                " matchers; join some by a regular expression like a|b"));
    }
    Selector::Matcher m;
    absl::StatusOr<std::string> name = Name();
    if (!name.ok()) return name.status();
    m.name = *std::move(name);
    SkipSpace();
    absl::StatusOr<Op> op = Operator(m.name);
    if (!op.ok()) return op.status();
    m.op = *op;
    SkipSpace();
    size_t value_at = at_;
    if (AtEnd() || (Peek() != '"' && Peek() != '\'' && Peek() != '`')) {
      return Error(absl::StrCat("the value of ", m.name, " must stand in quotes"));
    }
    absl::StatusOr<std::string> value = Quoted();
    if (!value.ok()) return value.status();
    m.value = *std::move(value);
    if (m.op == Op::kMatch || m.op == Op::kNoMatch) {
      if (absl::Status s = Compile(value_at, &m); !s.ok()) return s;
    }
    selector_.matchers_.push_back(std::move(m));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Name() {
    size_t begin = at_;
    if (!AtEnd() && (Peek() == '"' || Peek() == '\'' || Peek() == '`')) {
      absl::StatusOr<std::string> name = Quoted();
      if (name.ok() && name->empty()) return ErrorAt(begin, "a label name may not be empty");
      return name;
    }
    if (AtEnd() || !IsNameStart(Peek())) {
      return Error("expected a label name (letters, digits and _, or in quotes)");
    }
    while (!AtEnd() && IsNameChar(Peek())) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  absl::StatusOr<Op> Operator(const std::string& name) {
    std::string_view rest = text_.substr(at_);
    auto begins = [&](std::string_view op) { return rest.substr(0, op.size()) == op; };
    if (begins("==")) return Error("write = for equality, not ==,");
    if (begins("=~")) return at_ += 2, Op::kMatch;
    if (begins("!~")) return at_ += 2, Op::kNoMatch;
    if (begins("!=")) return at_ += 2, Op::kNotEqual;
    if (begins("=")) return at_ += 1, Op::kEqual;
    // What people type first is the bare name of a host.
    return Error(absl::StrCat("expected =, !=, =~ or !~ after ", name,
                              " (a host by its name is host=", Quote(name), ")"));
  }

  absl::StatusOr<std::string> Quoted() {
    size_t begin = at_;
    char quote = text_[at_++];
    std::string out;
    while (!AtEnd()) {
      char c = text_[at_];
      if (c == quote) {
        ++at_;
        return out;
      }
      if (c == '\\' && quote != '`') {
        if (absl::Status s = Escape(&out); !s.ok()) return s;
        continue;
      }
      out += c;
      ++at_;
    }
    return ErrorAt(begin, absl::StrCat("the closing ", std::string(1, quote), " is missing"));
  }

  absl::Status Escape(std::string* out) {
    size_t begin = at_++;
    if (AtEnd()) return ErrorAt(begin, "a backslash ends the text");
    char c = text_[at_++];
    switch (c) {
      case 'a':
        *out += '\a';
        return absl::OkStatus();
      case 'b':
        *out += '\b';
        return absl::OkStatus();
      case 'f':
        *out += '\f';
        return absl::OkStatus();
      case 'n':
        *out += '\n';
        return absl::OkStatus();
      case 'r':
        *out += '\r';
        return absl::OkStatus();
      case 't':
        *out += '\t';
        return absl::OkStatus();
      case 'v':
        *out += '\v';
        return absl::OkStatus();
      case '\\':
      case '"':
      case '\'':
        *out += c;
        return absl::OkStatus();
      case 'x': {
        int high = at_ < text_.size() ? HexDigit(text_[at_]) : -1;
        int low = at_ + 1 < text_.size() ? HexDigit(text_[at_ + 1]) : -1;
        if (high < 0 || low < 0) return ErrorAt(begin, "\\x wants two hexadecimal digits");
        *out += static_cast<char>(high * 16 + low);
        at_ += 2;
        return absl::OkStatus();
      }
      default:
        return ErrorAt(begin, absl::StrCat("unknown escape \\", std::string(1, c),
                                           "; write \\\\ for a backslash, or put a regular "
                                           "expression in `…`,"));
    }
  }

  absl::Status Compile(size_t position, Selector::Matcher* m) const {
    if (m->value.size() > kMaxSelectorRegexBytes) {
      return ErrorAt(position, absl::StrCat("a regular expression may have at most ",
                                            kMaxSelectorRegexBytes, " bytes"));
    }
    RE2::Options options;
    options.set_log_errors(false);
    options.set_dot_nl(true);
    options.set_never_capture(true);
    options.set_max_mem(kSelectorRegexMemoryBytes);
    auto regex = std::make_shared<const RE2>(m->value, options);
    if (!regex->ok()) {
      return ErrorAt(position, absl::StrCat("bad regular expression for ", m->name, " (",
                                            regex->error(), ")"));
    }
    m->regex = std::move(regex);
    return absl::OkStatus();
  }

  std::string_view text_;
  size_t at_ = 0;
  Selector selector_;
};

absl::StatusOr<Selector> Selector::Parse(std::string_view text) {
  return SelectorParser(text).Run();
}

bool Selector::Matcher::Positive(std::string_view text) const {
  if (regex != nullptr) return RE2::FullMatch(re2::StringPiece(text.data(), text.size()), *regex);
  return text == value;
}

bool Selector::Matches(const SelectorTarget& target) const {
  for (const Matcher& m : matchers_) {
    bool positive;
    if (m.name == "host") {
      positive = m.Positive(target.hostname) || m.Positive(target.host_id);
    } else if (m.name == "kernel") {
      positive = m.Positive(target.kernel_release);
    } else {
      positive = m.Positive(LookUp(target.labels, m.name));
    }
    if (positive == m.negated()) return false;
  }
  return true;
}

bool Selector::Matches(const std::map<std::string, std::string>& labels) const {
  for (const Matcher& m : matchers_) {
    if (m.Positive(LookUp(&labels, m.name)) == m.negated()) return false;
  }
  return true;
}

std::string Selector::ToString() const {
  static constexpr std::array<const char*, 4> kOps = {"=", "!=", "=~", "!~"};
  std::string out = "{";
  for (const Matcher& m : matchers_) {
    if (out.size() > 1) out += ',';
    out += IsPlainName(m.name) ? m.name : Quote(m.name);
    out += kOps[static_cast<size_t>(m.op)];
    out += Quote(m.value);
  }
  out += '}';
  return out;
}

}  // namespace fleetblame
