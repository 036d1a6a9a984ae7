// Tables store a list of names as one text.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace mxfp4 {

/// The texts that end at one of `ends`, each without the white space before it.
inline std::vector<std::string> split(std::string_view text, std::string_view ends) {
  constexpr std::string_view space = " \t\n\v\f\r";
  std::vector<std::string> out;
  while (text.remove_prefix(std::min(text.find_first_not_of(space), text.size())), !text.empty()) {
    const size_t end = std::min(text.find_first_of(ends), text.size());
    out.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

inline std::vector<std::string> words(std::string_view text) { return split(text, " \t\n\v\f\r"); }

/// "SM10x, SM12x" is two.
inline std::vector<std::string> comma_separated(std::string_view text) { return split(text, ","); }

inline bool has_word(std::string_view text, std::string_view word) {
  const auto all = words(text);
  return std::find(all.begin(), all.end(), word) != all.end();
}

inline void add_once(std::vector<std::string>& list, std::string word) {
  if (std::find(list.begin(), list.end(), word) == list.end()) list.push_back(std::move(word));
}

}  // namespace mxfp4
