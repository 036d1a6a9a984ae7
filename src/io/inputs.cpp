#include "src/io/inputs.h"

#include <vector>

#include "src/base/error.h"

namespace mxfp4 {

namespace {

constexpr size_t most_differences = 3, most_characters = 40;

std::string shown(const Json& value) {
  const std::string text = one_line(value);
  return text.size() > most_characters ? text.substr(0, most_characters) + ".." : text;
}

void compare(const std::string& path, const Json& was, const Json& is, std::vector<std::string>& found) {
  if (!was.is_object() || !is.is_object()) {
    if (was != is) found.push_back(fmt::format("{} was {}, is {}", path, shown(was), shown(is)));
    return;
  }
  const auto below = [&](const std::string& key) { return path.empty() ? key : path + " " + key; };
  for (const auto& [key, value] : was.items())
    if (const auto at = is.find(key); at != is.end())
      compare(below(key), value, *at, found);
    else
      found.push_back(below(key) + " is gone");
  for (const auto& item : is.items())
    if (!was.contains(item.key())) found.push_back(below(item.key()) + " is new");
}

}  // namespace

std::string changed_inputs(const std::string& was, const Json& is) {
  const Json before = Json::parse(was, nullptr, false);
  std::vector<std::string> found;
  if (before.is_object() && !before.empty() && !is.empty()) compare("", before, is, found);
  const size_t all = found.size();
  if (all > most_differences) found.resize(most_differences);
  return printable(fmt::format("{}{}", fmt::join(found, "; "),
                               all > most_differences ? fmt::format("; and {} more", all - most_differences) : ""));
}

}  // namespace mxfp4
