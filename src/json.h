// JSON as this tool reads it: strict, no duplicate keys, bounded depth.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace mxfp4 {

/// Keeps the order of keys.
using Json = nlohmann::ordered_json;

/// Base of SAX handlers: tracks depth, refuses more than `max_depth` levels, remembers the first complaint.
struct SaxBase {
  int depth = 0, max_depth = 32;
  std::string complaint;  // empty: none
  size_t position = 0;

  bool refuse(std::string text) {
    if (complaint.empty()) complaint = std::move(text);
    return false;
  }
  bool enter() { return ++depth <= max_depth || refuse("nested deeper than " + std::to_string(max_depth) + " levels"); }
  bool binary(std::vector<uint8_t>&) { return refuse("binary value"); }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception& e);
};

/// Parses a whole document. Throws Error{input}: "FILE: invalid JSON: ...".
Json parse_json(std::string_view text, std::string_view file, int max_depth = 64);

}  // namespace mxfp4
