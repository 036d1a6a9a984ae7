// Checkpoints without data: names, dtypes, shapes and configs, for the tests of completeness.
#pragma once

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "src/base/file.h"
#include "src/models/complete.h"
#include "src/synth/describe.h"

namespace mxfp4 {

/// Expands "{0-3,7}" in a pattern to every number.
inline void expand(const std::string& pattern, std::vector<std::string>& out) {
  const size_t open = pattern.find('{');
  if (open == pattern.npos) return out.push_back(pattern);
  const size_t close = pattern.find('}', open);
  const char *at = pattern.data() + open + 1, *end = pattern.data() + close;
  while (at < end) {
    int64_t first = 0;
    at = std::from_chars(at, end, first).ptr;
    int64_t last = first;
    if (at < end && *at == '-') at = std::from_chars(at + 1, end, last).ptr;
    for (int64_t n = first; n <= last; ++n)
      expand(pattern.substr(0, open) + std::to_string(n) + pattern.substr(close + 1), out);
    ++at;  // a comma
  }
}

inline Checkpoint with_tensors(Json config, std::vector<Tensor> tensors) {
  Checkpoint ck;
  ck.dir = "ckpt";
  ck.config = std::move(config);
  ck.shards = {{"ckpt.safetensors", "", {}}};
  ck.tensors = std::move(tensors);
  std::sort(ck.tensors.begin(), ck.tensors.end(), [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  return ck;
}

/// A checkpoint of testdata/published, which has no shapes.
inline Checkpoint published(const std::string& path) {
  const Json facts = parse_json(read_text(path, 1 << 22), path);
  std::vector<std::string> names;
  for (const Json& pattern : facts["tensors"]) expand(pattern.get<std::string>(), names);
  std::vector<Tensor> tensors;
  for (const std::string& name : names) tensors.push_back({name, Dtype::BF16, {}, 0, 0, 0});
  return with_tensors(facts["config"], std::move(tensors));
}

/// A synthetic checkpoint with four experts. layers 0: as many as the published model.
inline Checkpoint synthetic(std::string_view model, int64_t layers, bool tiny = false) {
  SynthSizes sizes;
  sizes.tiny = tiny;
  if (layers > 0) sizes.layers = layers;
  if (!tiny) sizes.experts = 4;
  const SynthCheckpoint s = describe_checkpoint(model, sizes);
  std::vector<Tensor> tensors;
  for (const SynthTensor& t : s.tensors) tensors.push_back({t.name, t.dtype, t.shape, 0, 0, t.bytes});
  return with_tensors(s.config, std::move(tensors));
}

inline std::string text_of(const std::vector<Lack>& lacks) {
  std::string out;
  for (const Lack& l : lacks) out += l.where + ": " + l.what + "\n";
  return out;
}

/// The messages if the tensors whose names contain one of `parts` are missing; "nothing was removed" if there are none.
inline std::string without(Checkpoint ck, const std::vector<std::string>& parts) {
  const size_t before = ck.tensors.size();
  std::erase_if(ck.tensors, [&](const Tensor& t) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const std::string& part) { return t.name.find(part) != t.name.npos; });
  });
  return ck.tensors.size() < before ? text_of(find_lacks(ck)) : "nothing was removed";
}

}  // namespace mxfp4
