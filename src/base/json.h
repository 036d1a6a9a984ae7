// JSON as this tool reads it: strict, no duplicate keys, bounded depth.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace mxfp4 {

struct Error;

inline constexpr size_t max_name_bytes = 4096;  // of a tensor or a file

/// Keeps the order of keys.
using Json = nlohmann::ordered_json;

/// JSON on one line; bytes that are no UTF-8 (paths may hold them) become U+FFFD, and what is not printable() \uNNNN.
std::string one_line(const Json& json);
/// What "error" holds in what a command prints.
Json json_of(const Error& error);

/// Base of SAX handlers: tracks depth, refuses more than `max_depth` levels, keeps the first complaint.
struct SaxBase {
  int depth = 0, max_depth = 32;
  std::string complaint;  // empty: none

  bool refuse(std::string text) {
    if (complaint.empty()) complaint = std::move(text);
    return false;
  }
  bool enter() { return ++depth <= max_depth || refuse("nested deeper than " + std::to_string(max_depth) + " levels"); }
  bool binary(std::vector<uint8_t>&) { return refuse("binary value"); }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception& e);
};

/// Parses a whole document into a handler. False where it is no JSON or the handler refused: its complaint says why.
template <class Sax>
bool parse_sax(std::string_view text, Sax& sax) {
  // The library takes a NUL byte for the end and skips a byte order mark; neither is JSON.
  if (const size_t at = text.find('\0'); at != text.npos) return sax.refuse("NUL at byte " + std::to_string(at));
  if (text.starts_with("\xEF\xBB\xBF")) return sax.refuse("starts with a byte order mark");
  return nlohmann::json::sax_parse(text.begin(), text.end(), &sax);
}

/// Parses a whole document. Throws Error{input}: "FILE: invalid JSON: ...".
Json parse_json(std::string_view text, std::string_view file, int max_depth = 64);

}  // namespace mxfp4
