// Readers of untrusted bytes. Each function takes any text and returns its errors, if any. Any other behaviour,
// including an exception of another type, is a defect. The fuzz targets and the mutation tests call these functions.
#pragma once

#include <sstream>

#include "src/backends/layout_file.h"
#include "src/packed/packed_checkpoint.h"
#include "src/packed/tables.h"
#include "tests/support/make_checkpoint.h"
#include "tests/support/seal.h"

namespace mxfp4::fuzz {

using Lines = std::vector<std::string>;

template <class Read>
Lines said_by(Read read) {
  Problems problems;
  try {
    read(problems);
  } catch (const Error& e) {
    problems.add(e);
  }
  for (const std::string& line : problems.errors())
    if (!is_printable(line)) throw std::logic_error("a message that may not be shown");
  return problems.errors();
}

/// The whole way to a plan, as convert goes before it reads data.
inline void plan_for(const Checkpoint& ck, const ModelOptions& options, const std::string& engine, Problems& problems) {
  const Model model = recognise(ck, options, problems);
  if (problems.any()) return;
  make_plan(ck, model, find_backend("marlin", engine, ""), {}, problems);
}

inline Checkpoint in_memory(const MadeCheckpoint& made) {
  Checkpoint ck;
  ck.dir = "checkpoint";
  ck.config = made.config;
  for (const auto& [file, tensors] : made.shards) {
    ck.shards.push_back({file, {}, {}});
    for (const auto& [name, t] : tensors)
      ck.tensors.push_back({name, t.dtype, t.shape, int(ck.shards.size()) - 1, 0, int64_t(t.data.size())});
  }
  std::sort(ck.tensors.begin(), ck.tensors.end(), [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  return ck;
}

/// The largest number that stands before a ']': the file is taken to be as long as such a header says.
inline int64_t data_bytes_of(std::string_view header) {
  int64_t most = 0;
  for (size_t i = 0; i < header.size(); ++i) {
    int64_t number = 0;
    while (i < header.size() && header[i] >= '0' && header[i] <= '9' && number < INT64_MAX / 20)
      number = number * 10 + header[i++] - '0';
    if (i < header.size() && header[i] == ']') most = std::max(most, number);
  }
  return std::min(most, max_checkpoint_bytes);
}

inline Lines read_header_text(std::string_view text) {
  return said_by([&](Problems& problems) {
    const int64_t bytes = 8 + int64_t(text.size()) + data_bytes_of(text);
    const Header header = parse_header(text, bytes, "file", problems);
    if (problems.any()) return;
    for (const MadeCheckpoint& like : {make_gpt_oss(), make_deepseek()}) {
      Checkpoint ck = in_memory(like);
      ck.shards = {{"file", {}, {}}};
      ck.tensors = header.tensors;
      std::sort(ck.tensors.begin(), ck.tensors.end(), [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
      Problems of_model;
      plan_for(ck, {}, "vllm", of_model);
    }
  });
}

inline Lines read_index_text(std::string_view text) {
  return said_by([&](Problems& problems) {
    const Index index = parse_index(text, problems);
    for (const auto& [tensor, file] : index.weight_map) {
      is_safe_name(file);
      if (!problems.any() && *index.file_of(tensor) != file) throw std::logic_error("not found");
    }
  });
}

inline Lines read_config_text(std::string_view text) {
  return said_by([&](Problems& problems) {
    const Json config = parse_json(text, "config.json");
    if (!config.is_object()) return problems.error("config.json", "no JSON object");
    for (const MadeCheckpoint& made : {make_gpt_oss(), make_deepseek()})
      for (const char* gate_up : {"", "concatenated"}) {
        Checkpoint ck = in_memory(made);
        ck.config = config;
        Problems of_model;
        plan_for(ck, {.gate_up = gate_up}, "sglang", of_model);
        if (problems.errors().empty())
          for (const std::string& line : of_model.errors()) problems.error("model", "{}", line);
      }
  });
}

inline Lines read_manifest_text(std::string_view text) {
  return said_by([&](Problems&) { parse_manifest(sealed(std::string(text))); });
}

/// Of a source that has the tensors of make_gpt_oss(), or of a set.
inline Lines read_table_text(std::string_view text) {
  return said_by([&](Problems& problems) {
    if (text.empty()) problems.error("table", "empty");
    Manifest m;
    m.source = in_memory(make_gpt_oss());
    m.checksums.resize(m.source.tensors.size());
    std::vector<bool> listed(m.source.tensors.size());
    ManifestSet set;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);)
      if (line.find("\"rank\"") != line.npos)
        take_set_line(line, "table", set);
      else
        take_source_line(line, "table", m, listed);
  });
}

inline Lines read_layout_text(std::string_view text) {
  return said_by([&](Problems&) { check_canary(read_layout(std::string(text), "layout.json"), "layout.json"); });
}

}  // namespace mxfp4::fuzz
