#include <algorithm>
#include <set>

#include "src/checkpoint/checkpoint.h"

namespace mxfp4 {

namespace {

/// {"metadata": {..}, "weight_map": {"tensor": "file", ..}}
struct IndexSax : SaxBase {
  using number_integer_t = int64_t;
  Index index;
  bool in_map = false, has_map = false;
  std::vector<std::set<std::string>> keys;  // of each open container, but not of weight_map
  std::string field;

  IndexSax() { max_depth = 8; }
  bool scalar(const char* what) {
    if (in_map)
      return refuse(fmt::format("weight_map: {}{} instead of {}", depth == 1 ? "" : field + " is ", what,
                                depth == 1 ? "an object" : "a file name"));
    return depth > 0 || refuse(fmt::format("{} instead of an object", what));
  }
  bool null() { return scalar("null"); }
  bool boolean(bool) { return scalar("true or false"); }
  bool number_integer(int64_t) { return scalar("a number"); }
  bool number_unsigned(uint64_t v) {
    if (at_total_size() && v <= uint64_t(INT64_MAX)) index.total_size = int64_t(v);
    return scalar("a number");
  }
  bool number_float(double v, const std::string&) {
    if (at_total_size() && v >= 0 && v < 9e18) index.total_size = int64_t(v);
    return scalar("a number");
  }
  bool string(std::string& v) {
    if (python_number(v)) return scalar("a number");
    if (!in_map || depth != 2) return scalar("a string");
    if (std::max(field.size(), v.size()) > max_name_bytes)
      return refuse(fmt::format("weight_map: a name of {} bytes, at most {} expected", std::max(field.size(), v.size()),
                                max_name_bytes));
    index.weight_map.emplace_back(std::move(field), std::move(v));
    return true;
  }
  bool start_object(size_t) {
    if (in_map && depth == 2) return scalar("an object");
    keys.emplace_back();
    return enter();
  }
  bool end_object() {
    if (--depth == 1) in_map = false;
    keys.pop_back();
    return true;
  }
  bool start_array(size_t) {
    if (in_map || depth == 0) return scalar("a list");
    keys.emplace_back();
    return enter();
  }
  bool end_array() {
    --depth;
    keys.pop_back();
    return true;
  }
  bool key(std::string& k) {
    if (python_number(k)) return refuse("a number in place of a key");
    if (!(in_map && depth == 2) && !keys.back().insert(k).second) return refuse(fmt::format("duplicate key '{}'", k));
    if (depth == 1) {
      in_map = k == "weight_map";
      has_map |= in_map;
    }
    field = std::move(k);
    return true;
  }
  bool at_total_size() const { return !in_map && depth == 2 && field == "total_size"; }
};

}  // namespace

const std::string* Index::file_of(std::string_view tensor) const {
  const auto it = std::lower_bound(weight_map.begin(), weight_map.end(), tensor,
                                   [](const auto& entry, std::string_view name) { return entry.first < name; });
  return it != weight_map.end() && it->first == tensor ? &it->second : nullptr;
}

Index parse_index(std::string_view text, Problems& problems) {
  IndexSax sax;
  const std::string json = with_python_numbers(text);
  if (!parse_sax(json, sax)) {
    problems.error(index_name, "{}", complaint_of(sax, json, sax.field));
    return {};
  }
  if (!sax.has_map) problems.error(index_name, "no weight_map");
  auto& map = sax.index.weight_map;
  std::sort(map.begin(), map.end());
  for (size_t i = 1; i < map.size(); ++i)
    if (map[i].first == map[i - 1].first) problems.error(where(index_name, map[i].first), "duplicate key");
  return std::move(sax.index);
}

}  // namespace mxfp4
