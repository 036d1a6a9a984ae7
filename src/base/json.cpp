#include "src/base/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
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
  return refuse_syntax(std::move(text), at);
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
  bool string(std::string& v) {
    if (const auto number = python_number(v)) return put(*number), true;
    return put(std::move(v)), true;
  }
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
    if (python_number(k)) return refuse("a number in place of a key");
    if (!keys.back().insert(k).second) return refuse("duplicate key '" + k + "'");
    auto* object = open.back()->get_ptr<Json::object_t*>();
    object->emplace_back(std::move(k), nullptr);
    slot = &object->back().second;
    return true;
  }

  /// Of the value that is read: "rope.factors[3]".
  std::string path() const {
    std::string out;
    if (std::none_of(open.begin(), open.end(), [](const Json* container) { return container->is_object(); }))
      return out;
    for (const Json* container : open)
      if (container->is_array() && !container->empty())
        out += fmt::format("[{}]", container->size() - 1);
      else if (container->is_object() && !container->empty())
        out += (out.empty() ? "" : ".") + container->get_ptr<const Json::object_t*>()->back().first;
    return out;
  }
};

constexpr std::string_view python_numbers[] = {"NaN", "Infinity", "-Infinity"};

/// As a string of JSON: no file has one that begins with a NUL.
std::string quoted_number(std::string_view number) { return fmt::format("\"\\u0000{}\"", number); }

std::string_view number_at(std::string_view text) {
  for (const std::string_view number : python_numbers)
    if (text.starts_with(number)) return number;
  return {};
}

/// Non-finite numbers become strings; true if there were any.
bool quote_numbers(Json& json) {
  bool any = false;
  if (json.is_structured())
    for (Json& child : json) any |= quote_numbers(child);
  if (!json.is_number_float() || std::isfinite(json.get<double>())) return any;
  const double v = json.get<double>();
  json = std::string(1, '\0').append(python_numbers[std::isnan(v) ? 0 : v > 0 ? 1 : 2]);
  return true;
}

}  // namespace

std::string python_text(const Json& json, int indent) {
  Json copy = json;
  const bool any = quote_numbers(copy);
  std::string text = copy.dump(indent, ' ', false, Json::error_handler_t::replace);
  for (const std::string_view number : any ? std::span(python_numbers) : std::span<const std::string_view>()) {
    const std::string quoted = quoted_number(number);
    for (size_t at = text.find(quoted); at != text.npos; at = text.find(quoted, at))
      text.replace(at, quoted.size(), number);
  }
  return text;
}

std::string with_python_numbers(std::string_view text) {
  if (text.find("NaN") == text.npos && text.find("Infinity") == text.npos) return std::string(text);
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    const std::string_view number = in_string ? "" : number_at(text.substr(i));
    const size_t taken = !number.empty() ? number.size() : in_string && text[i] == '\\' && i + 1 < text.size() ? 2 : 1;
    in_string ^= text[i] == '"';
    out += number.empty() ? std::string(text.substr(i, taken)) : quoted_number(number);
    i += taken;
  }
  return out;
}

std::optional<double> python_number(std::string_view string) {
  if (!string.starts_with('\0')) return std::nullopt;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::string_view number = string.substr(1);
  if (number == python_numbers[0]) return std::numeric_limits<double>::quiet_NaN();
  if (number == python_numbers[1]) return infinity;
  if (number == python_numbers[2]) return -infinity;
  return std::nullopt;
}

std::string complaint_of(const SaxBase& sax, std::string_view text, std::string_view key) {
  if (text.empty()) return "invalid JSON: " + sax.complaint;
  std::string_view before = text.substr(0, std::min(sax.complaint_at, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  before.remove_prefix(before.rfind('\n') + 1);
  const auto is_first_byte = [](char c) { return (c & 0xC0) != 0x80; };
  auto column = std::count_if(before.begin(), before.end(), is_first_byte);
  for (const std::string_view number : python_numbers) {
    const std::string quoted = quoted_number(number);
    for (size_t at = before.find(quoted); at != before.npos; at = before.find(quoted, at + 1))
      column -= int64_t(quoted.size() - number.size());
  }
  return fmt::format("invalid JSON: {} (line {}, column {}{})", sax.complaint, line, std::max<int64_t>(column, 1),
                     key.empty() ? "" : fmt::format(", key '{:.200}'", key));
}

Json parse_json(std::string_view text, std::string_view file, int max_depth) {
  DomSax sax;
  sax.max_depth = max_depth;
  const std::string json = with_python_numbers(text);
  if (!parse_sax(json, sax)) fail(ErrorKind::input, "{}: {}", file, complaint_of(sax, json, sax.path()));
  return std::move(sax.root);
}

}  // namespace mxfp4
