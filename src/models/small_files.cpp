// Small files that engines read beside the weights.
#include <algorithm>

#include "src/base/log.h"
#include "src/checkpoint/companion.h"
#include "src/models/complete.h"

namespace mxfp4 {

namespace {

constexpr int64_t most_bytes = int64_t(64) << 20;  // of a file that is looked into

bool is_json(std::string_view name) { return name.ends_with(".json"); }

/// Whether a model cannot be served without this file, if it has the file.
bool is_read(std::string_view name) {
  if (name.find('/') != name.npos) return false;
  for (const char* known : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                            "vocab.json", "chat_template.json", "generation_config.json", "preprocessor_config.json",
                            "processor_config.json", "video_preprocessor_config.json", "hf_quant_config.json",
                            "tokenizer.model", "tiktoken.model", "vocab.txt", "spiece.model"})
    if (name == known) return true;
  return name.ends_with(".jinja") || name.ends_with(".tiktoken");
}

/// Why a text is no JSON as Python reads it; empty if it is. Engines accept duplicate keys.
std::string fault_of(const std::string& text, const std::string& name) {
  if (text.find('\0') != text.npos) return "holds a byte 0";
  if (Json::accept(text)) return "";
  try {
    parse_json(text, name);
    return "";
  } catch (const Error& e) {
    const std::string what = e.what();
    return what.starts_with(name + ": ") ? what.substr(name.size() + 2) : what;
  }
}

/// The fault of a file; empty if there is none. Unreadable files of an output are reported by another check.
std::string fault_in(const Checkpoint& ck, const std::string& name) {
  std::string text;
  try {
    const TextSource source = companion_source(ck, name);
    source([&](std::string_view part) {
      if (int64_t(text.size()) <= most_bytes) text += part;
    });
  } catch (const Error&) {
    return "";
  }
  if (int64_t(text.size()) > most_bytes) return "";
  if (text.empty()) return "0 bytes";
  if (std::all_of(text.begin(), text.end(), [](char c) { return c == 0; })) return "holds only zeros";
  const std::string fault = is_json(name) ? fault_of(text, name) : "";
  return fault.empty() ? "" : "no JSON: " + fault;
}

}  // namespace

void check_small_files(const Checkpoint& ck, std::vector<Lack>& lacks, Problems& problems) {
  for (const std::string& name : ck.companions) {
    if (ck.unread.contains(name) || (!is_read(name) && !(is_json(name) && name.find('/') == name.npos))) continue;
    const std::string fault = fault_in(ck, name);
    if (fault.empty()) continue;
    if (is_read(name))
      lacks.push_back({name, fault + "; engines read this file"});
    else
      problems.warn(name, "{}", fault);
  }
}

}  // namespace mxfp4
