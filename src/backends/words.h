// Tables store a list of names as one text.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace mxfp4 {

inline std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

/// "SM10x, SM12x" is two.
inline std::vector<std::string> comma_separated(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string part; std::getline(in >> std::ws, part, ',');) out.push_back(part);
  return out;
}

inline bool has_word(const std::string& text, const std::string& word) {
  const auto all = words(text);
  return std::find(all.begin(), all.end(), word) != all.end();
}

inline void add_once(std::vector<std::string>& list, std::string word) {
  if (std::find(list.begin(), list.end(), word) == list.end()) list.push_back(std::move(word));
}

}  // namespace mxfp4
