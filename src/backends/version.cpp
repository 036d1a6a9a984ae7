#include "src/backends/version.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

namespace mxfp4 {

namespace {

/// rest: the text after the numbers.
std::vector<int> numbers(std::string_view text, std::string_view* rest = nullptr) {
  std::vector<int> out;
  while (true) {
    if (text.starts_with("post")) text.remove_prefix(4);
    int number;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) break;
    out.push_back(number);
    text.remove_prefix(size_t(end - text.data()));
    if (!text.starts_with(".")) break;
    text.remove_prefix(1);
  }
  if (rest) *rest = text;
  return out;
}

}  // namespace

int compare_versions(std::string_view a, std::string_view b) {
  const std::vector<int> x = numbers(a), y = numbers(b);
  for (size_t i = 0; i < x.size() || i < y.size(); ++i) {
    const int left = i < x.size() ? x[i] : 0, right = i < y.size() ? y[i] : 0;
    if (left != right) return left < right ? -1 : 1;
  }
  return 0;
}

bool is_prerelease(std::string_view version) {
  std::string_view rest;
  numbers(version, &rest);
  constexpr std::string_view suffixes[] = {"a", "b", "c", "rc", "dev", "-rc", "-dev"};
  return std::any_of(std::begin(suffixes), std::end(suffixes), [&](auto suffix) { return rest.starts_with(suffix); });
}

bool is_version(std::string_view text) { return numbers(text).size() >= 2; }

bool Range::contains(std::string_view version) const {
  return (!*first || compare_versions(first, version) <= 0) && (!*last || compare_versions(version, last) <= 0);
}

bool is_empty(const Range& r) { return *r.first && *r.last && compare_versions(r.first, r.last) > 0; }

std::string describe(const Range& r, const Range& known) {
  if (is_empty(r)) return {};
  const std::string_view first = *r.first ? r.first : known.first, last = *r.last ? r.last : known.last;
  return first == last ? std::string(first) : fmt::format("{} to {}", first, last);
}

}  // namespace mxfp4
