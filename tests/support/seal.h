// Updates the checksum of a changed manifest, as a forger would.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

#include "src/base/checksum.h"
#include "src/base/file.h"
#include "src/base/json.h"

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

/// config.json's checksum of the packed tensors, as mxfp4-pack-format(5) describes it.
inline std::string contents_checksum(const Json& manifest) {
  std::string text = std::string(manifest["source"]["fingerprint"]) + "\n";
  for (size_t i = 0; i < manifest["sets"].size(); ++i) {
    std::map<std::pair<int, std::string>, std::string> sums;
    for (const Json& t : manifest["sets"][i]["tensors"]) sums[{t["rank"], t["name"]}] = t["xxh3_128"];
    for (const auto& [tensor, sum] : sums)
      text += std::to_string(i) + " " + std::to_string(tensor.first) + " " + tensor.second + " " + sum + "\n";
  }
  return checksum_of(text);
}

/// Writes an output's manifest, and the config.json that goes with it.
inline void write_forged(const std::string& out, std::string manifest) {
  constexpr std::string_view key = "\"checksum\": \"";
  std::string config = read_text(out + "/config.json", 1 << 24);
  const std::string before = checksum_of(config);
  const size_t at = config.find(key);
  if (at == config.npos) throw std::logic_error("no checksum in config.json");
  config.replace(at + key.size(), 32, contents_checksum(parse_json(manifest, "manifest")));
  write_text(out + "/config.json", config);
  write_text(out + "/mxfp4-pack.json", with_text(manifest, before, checksum_of(config)));
}

}  // namespace mxfp4
