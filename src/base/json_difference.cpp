#include "src/base/json_difference.h"

#include <algorithm>

namespace mxfp4 {

namespace {

constexpr int64_t most_lines = 20;
constexpr size_t most_characters = 80;

std::string shown(const Json* value, const char* otherwise) {
  if (!value) return otherwise;
  std::string text = python_text(*value);
  return text.size() > most_characters ? text.substr(0, most_characters) + ".." : text;
}

struct Walk {
  const char* separator;
  const UseDifference& use;

  void compare(const std::string& path, const Json& was, const Json& is) const {
    if (was.is_object() && is.is_object())
      compare_objects(path, was, is);
    else if (was.is_array() && is.is_array())
      compare_lists(path, was, is);
    else if (was != is)
      use(path, &was, &is);
  }

  void compare_objects(const std::string& path, const Json& was, const Json& is) const {
    const auto below = [&](const std::string& key) {
      return fmt::format("{}{}{}", path, path.empty() ? "" : separator, key);
    };
    for (const auto& [key, value] : was.items())
      if (const auto found = is.find(key); found != is.end())
        compare(below(key), value, *found);
      else
        use(below(key), &value, nullptr);
    for (const auto& [key, value] : is.items())
      if (!was.contains(key)) use(below(key), nullptr, &value);
  }

  void compare_lists(const std::string& path, const Json& was, const Json& is) const {
    for (size_t i = 0; i < std::min(was.size(), is.size()); ++i) compare(fmt::format("{}[{}]", path, i), was[i], is[i]);
    if (was.size() != is.size()) use(path, &was, &is);
  }
};

}  // namespace

void each_difference(const Json& was, const Json& is, const char* separator, const UseDifference& use) {
  Walk{separator, use}.compare("", was, is);
}

void report_differences(const std::string& file, const Json& expected, const Json& is, Problems& problems) {
  int64_t count = 0;
  each_difference(expected, is, ".", [&](const std::string& path, const Json* want, const Json* got) {
    if (++count > most_lines) return;
    const bool are_lists = want && got && want->is_array() && got->is_array();
    const std::string what = are_lists ? fmt::format("{} entries, {} expected", got->size(), want->size())
                                       : fmt::format("{}, {} expected", shown(got, "missing"), shown(want, "nothing"));
    problems.error(file, "{}: {}", printable(path), printable(what));
  });
  if (count > most_lines) problems.error(file, "and {} more differences", count - most_lines);
}

}  // namespace mxfp4
