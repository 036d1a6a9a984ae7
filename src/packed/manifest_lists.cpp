#include "src/packed/manifest_lists.h"

#include <algorithm>

#include "src/packed/manifest_format.h"

namespace mxfp4 {

namespace {

std::string_view next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

/// The lines up to the one that closes the list, without the commas between them. False where they are no such lines.
bool take_entries(std::string_view& text, std::vector<std::string_view>& entries) {
  bool more = true;
  while (!text.starts_with(']')) {
    std::string_view line = next_line(text);
    if (!more || !line.starts_with('{')) return false;
    more = line.ends_with(',');
    if (more) line.remove_suffix(1);
    entries.push_back(line);
  }
  return entries.empty() || !more;
}

bool is_empty_list(const Json& holder, const char* key) {
  const auto list = holder.is_object() ? holder.find(key) : holder.end();
  return holder.is_object() && list != holder.end() && list->is_array() && list->empty();
}

/// False where the text is laid out in another way.
bool split(std::string_view text, SplitManifest& out) {
  std::string rest;
  int copied_lists = 0;
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    rest.append(line) += '\n';
    if (line == "\"copied\": [") {
      if (copied_lists++ > 0 || !take_entries(text, out.copied)) return false;
    } else if (line == "\"tensors\": [") {
      if (!take_entries(text, out.tensors.emplace_back())) return false;
    }
  }
  out.rest = parse_json(rest, manifest_name);
  if (copied_lists != 1 || !is_empty_list(out.rest, "copied") || !out.rest.contains("sets")) return false;
  const Json& sets = out.rest["sets"];
  if (!sets.is_array() || sets.size() != out.tensors.size()) return false;
  return std::all_of(sets.begin(), sets.end(), [](const Json& set) { return is_empty_list(set, "tensors"); });
}

}  // namespace

SplitManifest split_manifest(std::string_view text) {
  SplitManifest out;
  if (split(text, out)) return out;
  return {parse_json(text, manifest_name), {}, {}};
}

}  // namespace mxfp4
