#include "src/base/json.h"

#include <algorithm>
#include <unordered_set>

#include "src/base/error.h"

namespace mxfp4 {

Json json_of(const Error& error) { return {{"kind", name_of(error.kind)}, {"lines", error.lines}}; }

std::string one_line(const Json& json) {
  return printable_json(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

bool SaxBase::parse_error(size_t at, const std::string&, const nlohmann::detail::exception& e) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ..; last read: '..'"
  std::string text = e.what();
  if (at == 1 && text.find(" input;") != text.npos) return refuse("empty");  // versions say it differently
  text.resize(std::min(text.find("; last read"), text.size()));
  for (const char* before : {"] ", ": "})
    if (const size_t start = text.find(before); start != text.npos) text.erase(0, start + 2);
  text.resize(std::min<size_t>(text.size(), 200));
  return refuse(text + " at byte " + std::to_string(at));
}

namespace {

/// Builds a Json document; a stack of open containers, the keys seen in each.
struct DomSax : SaxBase {
  using number_integer_t = Json::number_integer_t;
  Json root;
  std::vector<Json*> open;
  std::vector<std::unordered_set<std::string>> keys;
  Json* slot = nullptr;

  Json* put(Json value) {
    Json* place = open.empty() ? &root : slot;
    if (!open.empty() && open.back()->is_array()) place = &open.back()->emplace_back();
    *place = std::move(value);
    return place;
  }
  bool null() { return put(nullptr), true; }
  bool boolean(bool v) { return put(v), true; }
  bool number_integer(int64_t v) { return put(v), true; }
  bool number_unsigned(uint64_t v) { return put(v), true; }
  bool number_float(double v, const std::string&) { return put(v), true; }
  bool string(std::string& v) { return put(std::move(v)), true; }
  bool start(Json value) {
    if (!enter()) return false;
    open.push_back(put(std::move(value)));
    keys.emplace_back();
    return true;
  }
  bool end() { return --depth, open.pop_back(), keys.pop_back(), true; }
  bool start_object(size_t) { return start(Json::object()); }
  bool start_array(size_t) { return start(Json::array()); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool key(std::string& k) {
    if (!keys.back().insert(k).second) return refuse("duplicate key '" + k + "'");
    auto* object = open.back()->get_ptr<Json::object_t*>();
    object->emplace_back(std::move(k), nullptr);
    slot = &object->back().second;
    return true;
  }
};

}  // namespace

Json parse_json(std::string_view text, std::string_view file, int max_depth) {
  DomSax sax;
  sax.max_depth = max_depth;
  if (!parse_sax(text, sax)) fail(ErrorKind::input, "{}: invalid JSON: {}", file, sax.complaint);
  return std::move(sax.root);
}

}  // namespace mxfp4
