#include "src/synth/expression.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "src/base/error.h"

namespace mxfp4 {

namespace {

/// Recursive descent: each function reads one level of precedence and returns its value.
class Evaluator {
 public:
  Evaluator(std::string_view text, const Scope& scope) : text_(text), rest_(text), scope_(scope) {}

  int64_t run() {
    const int64_t value = conjunction();
    if (skip_spaces(); !rest_.empty()) complain(fmt::format("unexpected '{}'", rest_));
    return value;
  }

 private:
  [[noreturn]] void complain(std::string_view what) const { fail(ErrorKind::usage, "'{}': {}", text_, what); }

  void skip_spaces() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  bool take(std::string_view token) {
    skip_spaces();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) complain(fmt::format("'{}' expected before '{}'", token, rest_));
  }

  int64_t conjunction() {
    int64_t value = comparison();
    while (take("and")) {
      const int64_t right = comparison();
      value = value != 0 && right != 0;
    }
    return value;
  }

  int64_t comparison() {
    const int64_t left = sum();
    if (take("==")) return left == sum();
    if (take("!=")) return left != sum();
    if (take("<=")) return left <= sum();
    if (take(">=")) return left >= sum();
    if (take("<")) return left < sum();
    if (take(">")) return left > sum();
    return left;
  }

  int64_t sum() {
    int64_t value = product();
    for (;;)
      if (take("+"))
        check_overflow(__builtin_add_overflow(value, product(), &value));
      else if (take("-"))
        check_overflow(__builtin_sub_overflow(value, product(), &value));
      else
        return value;
  }

  int64_t product() {
    int64_t value = factor();
    for (;;)
      if (take("*"))
        check_overflow(__builtin_mul_overflow(value, factor(), &value));
      else if (take("/"))
        value = exact_quotient(value, factor());
      else
        return value;
  }

  int64_t factor() {
    if (take("-")) return -factor();
    if (take("(")) {
      const int64_t value = conjunction();
      expect(")");
      return value;
    }
    if (!rest_.empty() && std::isdigit(static_cast<unsigned char>(rest_.front()))) return number();
    return named();
  }

  int64_t number() {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) complain("a number is too large");
    rest_.remove_prefix(size_t(end - rest_.data()));
    return value;
  }

  /// A dimension, an element of a list or a function.
  int64_t named() {
    size_t length = 0;
    while (length < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[length])) || rest_[length] == '_'))
      ++length;
    const std::string_view name = rest_.substr(0, length);
    if (name.empty()) complain(fmt::format("a value expected before '{}'", rest_));
    rest_.remove_prefix(length);
    if (take("(")) return call(name);
    if (take("[")) return element(name);
    const auto found = scope_.numbers.find(name);
    if (found == scope_.numbers.end()) complain(fmt::format("unknown name '{}'", name));
    return found->second;
  }

  int64_t call(std::string_view name) {
    const int64_t a = conjunction();
    expect(",");
    const int64_t b = conjunction();
    expect(")");
    if (name == "min") return std::min(a, b);
    if (name == "max") return std::max(a, b);
    if (name != "ceildiv") complain(fmt::format("unknown function '{}'", name));
    if (a < 0 || b <= 0) complain(fmt::format("ceildiv({}, {}) has no value", a, b));
    return a / b + (a % b != 0);
  }

  int64_t element(std::string_view name) {
    const auto found = scope_.lists.find(name);
    if (found == scope_.lists.end()) complain(fmt::format("unknown list '{}'", name));
    const int64_t index = conjunction();
    expect("]");
    const int64_t size = int64_t(found->second.size());
    if (index < 0 || index >= size) complain(fmt::format("{}[{}], but it has {} entries", name, index, size));
    return found->second[size_t(index)];
  }

  void check_overflow(bool overflow) const {
    if (overflow) complain("the value overflows");
  }
  int64_t exact_quotient(int64_t a, int64_t b) const {
    if (b == 0 || a % b != 0) complain(fmt::format("{} / {} is no whole number", a, b));
    return a / b;
  }

  std::string_view text_, rest_;
  const Scope& scope_;
};

}  // namespace

int64_t evaluate(std::string_view text, const Scope& scope) { return Evaluator(text, scope).run(); }

}  // namespace mxfp4
