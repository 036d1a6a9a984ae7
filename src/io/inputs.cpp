#include "src/io/inputs.h"

#include <vector>

#include "src/base/json_difference.h"

namespace mxfp4 {

namespace {

constexpr size_t most_differences = 3, most_characters = 40;

std::string shown(const Json& value) {
  const std::string text = one_line(value);
  return text.size() > most_characters ? fmt::format("{}..", text.substr(0, most_characters)) : text;
}

}  // namespace

std::string changed_inputs(const std::string& was, const Json& is) {
  const Json before = Json::parse(was, nullptr, false);
  std::vector<std::string> found;
  if (before.is_object() && !before.empty() && !is.empty())
    each_difference(before, is, " ", [&](const std::string& path, const Json* old, const Json* now) {
      if (!old || !now)
        found.push_back(fmt::format("{} is {}", path, old ? "gone" : "new"));
      else if (path.starts_with("file "))
        found.push_back(path + " has changed");
      else
        found.push_back(fmt::format("{} was {}, is {}", path, shown(*old), shown(*now)));
    });
  const size_t all = found.size();
  if (all > most_differences) found.resize(most_differences);
  return printable(fmt::format("{}{}", fmt::join(found, "; "),
                               all > most_differences ? fmt::format("; and {} more", all - most_differences) : ""));
}

}  // namespace mxfp4
