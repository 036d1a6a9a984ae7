#include "src/json.h"

#include <unordered_set>

#include "src/error.h"

namespace mxfp4 {

bool SaxBase::parse_error(size_t at, const std::string&, const nlohmann::detail::exception& e) {
  std::string text = e.what();
  const size_t colon = text.rfind("; last read");  // keep "syntax error ... ; last read: '...'", drop the id in front
  const size_t start = text.find("syntax error");
  if (start != std::string::npos) text = text.substr(start, colon == std::string::npos ? colon : colon - start);
  return refuse(printable(text) + " at byte " + std::to_string(at));
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
    if (open.empty()) return root = std::move(value), &root;
    if (open.back()->is_array()) return open.back()->push_back(std::move(value)), &open.back()->back();
    *slot = std::move(value);
    return slot;
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
    if (!keys.back().insert(k).second) return refuse("duplicate key '" + printable(k) + "'");
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
  if (!Json::sax_parse(text.begin(), text.end(), &sax))
    fail(Kind::input, "{}: invalid JSON: {}", printable(file), sax.complaint);
  return std::move(sax.root);
}

}  // namespace mxfp4
