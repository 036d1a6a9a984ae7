// Updates the checksum of a changed manifest, as a forger would.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "src/base/checksum.h"

namespace mxfp4 {

/// Sets the manifest's own checksum and leaves the other text unchanged. A text without a checksum is returned
/// unchanged.
inline std::string sealed(std::string text) {
  constexpr std::string_view key = "\"xxh3_128\": \"";
  const size_t at = text.find(key);
  if (at == text.npos || text.size() - at < key.size() + 32) return text;
  text.replace(at + key.size(), 32, 32, '0');
  return text.replace(at + key.size(), 32, checksum_of(text));
}

/// The first `from` in the manifest becomes `to`.
inline std::string with_text(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == text.npos) throw std::logic_error("not in the manifest: " + from);
  return sealed(text.replace(at, from.size(), to));
}

}  // namespace mxfp4
