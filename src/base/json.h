// JSON as this tool reads it: strict, no duplicate keys, bounded depth. Files may hold NaN, Infinity and -Infinity,
// which Python's json module writes and reads.
#pragma once

#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mxfp4 {

struct Error;

inline constexpr size_t max_name_bytes = 4096;  // of the name of a tensor or a file

/// Keeps the order of keys.
using Json = nlohmann::ordered_json;

/// JSON on one line. Bytes that are no UTF-8 (paths may contain them) become U+FFFD; unprintable characters (see
/// printable()) become \uNNNN.
std::string one_line(const Json& json);
/// JSON as Python writes it, with NaN, Infinity and -Infinity. indent: as for Json::dump().
std::string python_text(const Json& json, int indent = -1);
/// The value of "error" in a command's JSON output.
Json json_of(const Error& error);

/// Base of SAX handlers: tracks depth, refuses more than `max_depth` levels, keeps the first complaint.
struct SaxBase {
  int depth = 0, max_depth = 32;
  size_t bytes_read = 0;
  std::string complaint;    // empty: none
  size_t complaint_at = 0;  // bytes read until then
  bool is_syntax = false;   // the complaint is not the handler's

  bool refuse(std::string text) {
    if (complaint.empty()) complaint_at = bytes_read;
    if (complaint.empty()) complaint = std::move(text);
    return false;
  }
  bool refuse_syntax(std::string text, size_t at) {
    is_syntax = complaint.empty();
    bytes_read = at;
    return refuse(std::move(text));
  }
  bool enter() { return ++depth <= max_depth || refuse("nested deeper than " + std::to_string(max_depth) + " levels"); }
  bool binary(std::vector<uint8_t>&) { return refuse("binary value"); }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception& e);
};

/// Bytes of a text, which are counted as they are read.
struct CountedByte {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  const char* at;
  size_t* count;
  const char& operator*() const { return *at; }
  CountedByte& operator++() { return ++at, ++*count, *this; }
  bool operator==(const CountedByte& other) const { return at == other.at; }
  bool operator!=(const CountedByte& other) const { return at != other.at; }
};

/// Parses a whole document into a handler. False if it is no JSON or the handler refused: its complaint says why.
template <class Sax>
bool parse_sax(std::string_view text, Sax& sax) {
  // The library ends at a NUL byte and skips a byte order mark; neither is allowed in JSON.
  if (const size_t at = text.find('\0'); at != text.npos) return sax.refuse_syntax("NUL", at);
  if (text.starts_with("\xEF\xBB\xBF")) return sax.refuse("starts with a byte order mark");
  const char* const begin = text.data();
  return nlohmann::json::sax_parse(CountedByte{begin, &sax.bytes_read},
                                   CountedByte{begin + text.size(), &sax.bytes_read}, &sax);
}

/// A text of a file for parse_sax(): Python's numbers that are no JSON become strings which python_number() knows.
std::string with_python_numbers(std::string_view text);
std::optional<double> python_number(std::string_view string);

/// "invalid JSON: COMPLAINT (line 3, column 14, key 'rope.factor')". text: the result of with_python_numbers().
std::string complaint_of(const SaxBase& sax, std::string_view text, std::string_view key);

/// Parses a whole document. Throws Error{input}: "FILE: " and complaint_of().
Json parse_json(std::string_view text, std::string_view file, int max_depth = 64);

}  // namespace mxfp4
