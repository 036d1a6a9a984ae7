// Tables hold lists of names as one text.
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

inline bool has_word(const std::string& text, const std::string& word) {
  const auto all = words(text);
  return std::find(all.begin(), all.end(), word) != all.end();
}

}  // namespace mxfp4
