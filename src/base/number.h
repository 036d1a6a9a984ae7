// Numbers in texts.
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>

namespace mxfp4 {

/// The number from 0 on of which all of `text` consists; -1 if it is no such number.
inline int64_t whole_number(std::string_view text) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? value : -1;
}

}  // namespace mxfp4
