// Updates the checksum of a changed manifest, as a forger would.
#pragma once

#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "src/base/checksum.h"
#include "src/base/file.h"
#include "src/base/json.h"

namespace mxfp4 {

/// Updates the manifest's own checksum and leaves the other text unchanged. A text without a checksum is returned as it
/// is.
inline std::string sealed(std::string text) {
  constexpr std::string_view key = "\"xxh3_128\": \"";
  const size_t at = text.find(key);
  if (at == text.npos || text.size() - at < key.size() + 32) return text;
  text.replace(at + key.size(), 32, 32, '0');
  return text.replace(at + key.size(), 32, checksum_of(text));
}

/// The lines of a table as an array.
inline Json lines_of(const std::string& text) {
  Json lines = Json::array();
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(parse_json(line, "table"));
  return lines;
}
inline Json read_lines(const std::string& path) { return lines_of(read_text(path, 1 << 28)); }

/// Updates a changed file's entry in the manifest.
inline void list_again(const std::string& out, const std::string& name) {
  Json manifest = parse_json(read_text(out + "/mxfp4-pack.json", 1 << 28), "manifest");
  const std::string text = read_text(out + "/" + name, 1 << 28);
  for (Json& f : manifest["files"])
    if (f["name"] == name && f.contains("xxh3_128")) {
      f["bytes"] = text.size();
      f["xxh3_128"] = checksum_of(text);
    }
  write_text(out + "/mxfp4-pack.json", sealed(manifest.dump(1) + "\n"));
}

/// config.json's checksum of the packed tensors, as mxfp4-pack-format(5) describes it.
inline std::string contents_checksum(const std::string& out) {
  const Json manifest = parse_json(read_text(out + "/mxfp4-pack.json", 1 << 28), "manifest");
  std::string text = std::string(manifest["source"]["fingerprint"]) + "\n";
  for (size_t i = 0; i < manifest["sets"].size(); ++i) {
    std::map<std::pair<int, std::string>, std::string> sums;
    for (const Json& t : read_lines(out + "/" + std::string(manifest["sets"][i]["table"])))
      sums[{t["rank"], t["name"]}] = t["xxh3_128"];
    for (const auto& [tensor, sum] : sums)
      text += std::to_string(i) + " " + std::to_string(tensor.first) + " " + tensor.second + " " + sum + "\n";
  }
  return checksum_of(text);
}

/// Replaces the first `from` in the first set's table by `to`, and updates manifest and config.json.
inline void write_forged(const std::string& out, const std::string& from, const std::string& to) {
  const std::string table = "packed/tensors-0.jsonl";
  std::string text = read_text(out + "/" + table, 1 << 28);
  text.replace(text.find(from), from.size(), to);
  write_text(out + "/" + table, text);
  list_again(out, table);
  constexpr std::string_view key = "\"checksum\": \"";
  std::string config = read_text(out + "/config.json", 1 << 24);
  const size_t at = config.find(key);
  if (at == config.npos) throw std::logic_error("no checksum in config.json");
  write_text(out + "/config.json", config.replace(at + key.size(), 32, contents_checksum(out)));
  list_again(out, "config.json");
}

}  // namespace mxfp4
