#include "src/packed/companions.h"

#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "src/checkpoint/companion.h"
#include "src/packed/add_set.h"
#include "src/packed/canary.h"
#include "src/packed/file_checks.h"
#include "src/packed/packed_checkpoint.h"
#include "src/packed/source_headers.h"
#include "src/packed/tables.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

/// A checksum over the source's fingerprint and the checksums of all packed tensors. Engines cache compiled code under
/// a hash of the config, so the config must differ if OUT's bytes do. The manifest's own checksum does not work here,
/// because the manifest contains the checksum of config.json.
std::string contents_checksum(const Plan& plan, const TensorSums& sums, const std::vector<ManifestSet>& earlier) {
  using SumsByName = std::map<std::pair<int, std::string>, std::string>;
  SumsByName last;
  for (size_t i = 0; i < plan.packed.size(); ++i) last[{plan.packed[i].rank, plan.packed[i].name}] = sums.packed[i];
  std::vector<const SumsByName*> sets;
  for (const ManifestSet& s : earlier) sets.push_back(&s.checksums);
  sets.push_back(&last);
  Hasher hasher;
  const auto take = [&](const std::string& line) { hasher.take(line.data(), int64_t(line.size())); };
  take(fingerprint_of(plan, sums.source) + "\n");
  for (size_t i = 0; i < sets.size(); ++i)
    for (const auto& [tensor, checksum] : *sets[i])
      take(fmt::format("{} {} {} {}\n", i, tensor.first, tensor.second, checksum));
  return to_hex(hasher.hash());
}

/// The config with a new quant_method and the keys that the loaders need. `earlier`: sets.
std::string packed_config(const Plan& plan, const TensorSums& sums, const std::vector<ManifestSet>& earlier) {
  Json config = plan.checkpoint->config;
  Json* holder = &config;
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object() &&
                                                    text->contains("quantization_config") &&
                                                    !config.contains("quantization_config"))
    holder = &*text;
  const Json* found = quantization_config(config);  // may be compression_config
  const Json original = found ? *found : Json();
  Json& q = (*holder)["quantization_config"];
  q = original;
  q["quant_method"] = "mxfp4_pack";
  Json sets = Json::array();
  const auto add = [&](const std::string& engine, const std::string& backend, const std::string& version, int tp) {
    sets.push_back({{"engine", engine}, {"backend", backend}, {"layout_version", version}, {"moe_tp_size", tp}});
  };
  for (const ManifestSet& s : earlier) add(s.engine, s.backend, s.layout_version, s.tp_size);
  add(plan.backend->engine, plan.backend->name, plan.backend->layout_version, plan.tp_size);
  q["mxfp4_pack"] = {{"format_version", format_version},
                     {"manifest", manifest_name},
                     {"sets", sets},
                     {"checksum", contents_checksum(plan, sums, earlier)}};
  if (!original.is_null()) q["source_quantization_config"] = original;
  return python_text(config, 2) + "\n";
}

/// An index with the copied tensors only: an engine's default loader must never read packed tensors.
std::string rest_index(const Plan& plan) {
  int64_t total = 0;
  std::map<std::string_view, const std::string*> map;
  for (const CopiedTensor& t : plan.copied) {
    total += t.source->bytes;
    map[t.source->name] = &plan.files[size_t(*t.file)].name;
  }
  std::string out =
      fmt::format("{{\n  \"metadata\": {{\"total_size\": {}, \"mxfp4_pack\": \"{}\"}},\n  \"weight_map\": {{", total,
                  manifest_name);
  const char* separator = "\n";
  for (const auto& [name, file] : map) {
    out += fmt::format("{}    {}: {}", separator, Json(name).dump(), Json(*file).dump());
    separator = ",\n";
  }
  return out + "\n  }\n}\n";
}

/// Writes and syncs a file part by part.
void write_parts(Fd file, const TextSource& text) {
  int64_t at = 0;
  text([&](std::string_view part) {
    file.write(part.data(), int64_t(part.size()), at);
    at += int64_t(part.size());
  });
  file.sync();
  file.close();
}

std::string canary_name(const Plan& plan) { return fmt::format("packed/canary-{}.safetensors", plan.set); }

}  // namespace

void check_companions(const Checkpoint& source, Problems& problems) {
  for (const std::string& name : source.companions) try {
      companion_checksum(source, name);
    } catch (const Error& e) {
      problems.add(e);
    }
}

std::set<std::string> names_of_set(const Plan& plan) {
  std::set<std::string> names = {canary_name(plan), set_table_name(plan.set)};
  for (const OutFile& f : plan.files) names.insert(f.name);
  return names;
}

void link_earlier(const Plan& plan, const OutputDir& out, const PackedCheckpoint& earlier) {
  std::set<std::string> fresh = {manifest_name, config_name, run_file};
  fresh.merge(names_of_set(plan));
  link_files(earlier.held.folder(), out, fresh);
}

std::vector<std::string> files_made(const Plan& plan) {
  std::vector<std::string> names = plan.checkpoint->companions;
  names.insert(names.end(), {manifest_name, config_name, index_name, source_headers_name, source_index_name,
                             source_table_name, canary_name(plan), set_table_name(plan.set)});
  for (const OutFile& f : plan.files) names.push_back(f.name);
  return names;
}

void check_names(const OutputDir& out, const std::vector<std::string>& names) {
  const auto list = files_below(out.built());
  const std::set<std::string> kept(list.begin(), list.end());
  for (const std::string& name : names)
    if (!kept.count(name))
      fail(ErrorKind::io, "{}: this file system cannot keep this name beside the others; choose another place", name);
}

int64_t bytes_beside(const Plan& plan) {
  constexpr int64_t entry = 400;  // bytes for each tensor in the manifest and the index
  const Checkpoint& ck = *plan.checkpoint;
  auto bytes = int64_t(3 * ck.config_text.size() + plan.backend->layout_file.size());
  if (has_canary(*plan.backend)) bytes += int64_t(make_canary(*plan.model, *plan.backend).size());
  bytes += int64_t(ck.tensors.size() + plan.packed.size()) * entry;
  if (plan.set > 0) return bytes;  // the other files exist
  for (const auto& [name, file] : ck.companion_files) bytes += file.state.bytes;
  return bytes + source_headers_bytes(ck) + 2 * ck.index.bytes;
}

namespace {

/// Passes a text to `put`. Returns its entry in the manifest.
ListedFile put_listed(const char* kind, const std::string& name, const TextSource& text, const PutText& put) {
  Hasher hasher;
  int64_t bytes = 0;
  put(name, [&](const TextSink& to) {
    hasher = {};
    bytes = 0;
    text([&](std::string_view part) {
      hasher.take(part.data(), int64_t(part.size()));
      bytes += int64_t(part.size());
      to(part);
    });
  });
  return {name, bytes, to_hex(hasher.hash()), kind};
}

}  // namespace

std::vector<ListedFile> make_texts(const Plan& plan, const TensorSums& sums, const EarlierOutput* earlier,
                                   const PutText& put) {
  std::vector<ListedFile> files;
  const Checkpoint& ck = *plan.checkpoint;
  const auto add_parts = [&](const char* kind, const std::string& name, const TextSource& text) {
    files.push_back(put_listed(kind, name, text, put));
  };
  const auto add = [&](const char* kind, const std::string& name, const std::string& text) {
    add_parts(kind, name, [&](const TextSink& to) { to(text); });
  };
  if (earlier) files = earlier->files;
  std::erase_if(files, [](const ListedFile& f) { return f.kind == file_kind::config; });
  for (const OutFile& f : plan.files) files.push_back({f.name, f.bytes, checksum_of(f.header), file_kind::tensors});
  if (has_canary(*plan.backend)) add(file_kind::canary, canary_name(plan), make_canary(*plan.model, *plan.backend));
  if (!earlier) {
    for (const std::string& name : ck.companions) add_parts(file_kind::companion, name, companion_source(ck, name));
    add_parts(file_kind::source_headers, source_headers_name, source_headers(ck));
    if (ck.index.bytes > 0) add(file_kind::source_index, source_index_name, ck.index.read());
    add_parts(file_kind::source_table, source_table_name, source_table(plan, sums));
    add(file_kind::index, index_name, rest_index(plan));
  }
  add_parts(file_kind::table, set_table_name(plan.set), set_table(plan, sums));
  const std::vector<ManifestSet> none;
  add(file_kind::config, config_name, packed_config(plan, sums, earlier ? earlier->sets : none));
  return files;
}

void write_companions(const Plan& plan, const OutputDir& out, const Checksums& sums, const ManifestOptions& options,
                      const PackedCheckpoint* existing) {
  std::optional<EarlierOutput> earlier;
  if (existing) {
    const Manifest& m = existing->manifest;
    earlier = {m.files, m.sets};
  }
  const PutText put = [&](const std::string& name, const TextSource& text) {
    write_parts(out.create_text(name), text);
  };
  const TensorSums of_tensors = sums_of(plan, sums);
  const auto files = make_texts(plan, of_tensors, earlier ? &*earlier : nullptr, put);
  check_names(out, plan.checkpoint->companions);
  const std::vector<ManifestSet> none;
  out.write_text(manifest_name, make_manifest(plan, of_tensors, options, files, earlier ? earlier->sets : none));
}

}  // namespace mxfp4
