#include "src/packed/json_difference.h"

#include <algorithm>

namespace mxfp4 {

namespace {

constexpr int64_t most_lines = 20;
constexpr size_t most_characters = 80;

std::string shown(const Json& value) {
  std::string text = python_text(value);
  if (text.size() > most_characters) text = text.substr(0, most_characters) + "..";
  return text;
}

class Walk {
 public:
  Walk(std::string file, Problems& problems) : file_(std::move(file)), problems_(problems) {}
  ~Walk() {
    if (found_ > most_lines) problems_.error(file_, "and {} more differences", found_ - most_lines);
  }

  void compare(const std::string& path, const Json& expected, const Json& is) {
    if (expected.is_object() && is.is_object())
      compare_objects(path, expected, is);
    else if (expected.is_array() && is.is_array())
      compare_lists(path, expected, is);
    else if (expected != is)
      report(path, fmt::format("{}, {} expected", shown(is), shown(expected)));
  }

 private:
  void compare_objects(const std::string& path, const Json& expected, const Json& is) {
    for (const auto& [key, value] : expected.items()) {
      const std::string at = path.empty() ? key : path + "." + key;
      if (const auto found = is.find(key); found != is.end())
        compare(at, value, *found);
      else
        report(at, fmt::format("missing, {} expected", shown(value)));
    }
    for (const auto& [key, value] : is.items())
      if (!expected.contains(key))
        report(path.empty() ? key : path + "." + key, fmt::format("{}, nothing expected", shown(value)));
  }

  void compare_lists(const std::string& path, const Json& expected, const Json& is) {
    const size_t both = std::min(expected.size(), is.size());
    for (size_t i = 0; i < both; ++i) compare(fmt::format("{}[{}]", path, i), expected[i], is[i]);
    if (expected.size() != is.size()) report(path, fmt::format("{} entries, {} expected", is.size(), expected.size()));
  }

  void report(const std::string& path, const std::string& what) {
    if (found_++ < most_lines) problems_.error(file_, "{}: {}", printable(path), printable(what));
  }

  const std::string file_;
  Problems& problems_;
  int64_t found_ = 0;
};

}  // namespace

void report_differences(const std::string& file, const Json& expected, const Json& is, Problems& problems) {
  Walk(file, problems).compare("", expected, is);
}

}  // namespace mxfp4
