// A manifest that was changed and has its own checksum made anew, as who wants to deceive would.
#pragma once

#include <stdexcept>
#include <string>

#include "src/base/checksum.h"

namespace mxfp4 {

/// Sets the manifest's own checksum; the rest of the text stays as it is.
inline std::string sealed(std::string text) {
  const std::string key = "\"xxh3_128\": \"";
  const size_t at = text.find(key);
  if (at == text.npos) throw std::logic_error("no checksum");
  text.replace(at + key.size(), 32, std::string(32, '0'));
  return text.replace(at + key.size(), 32, to_hex(hash_bytes(text.data(), int64_t(text.size()))));
}

/// The first `from` in the manifest becomes `to`.
inline std::string with_text(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == text.npos) throw std::logic_error("not in the manifest: " + from);
  return sealed(text.replace(at, from.size(), to));
}

}  // namespace mxfp4
