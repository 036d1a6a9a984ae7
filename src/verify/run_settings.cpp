#include "src/verify/run_settings.h"

#include "src/packed/packed_checkpoint.h"

namespace mxfp4 {

namespace {

struct NamedSetting {
  const char* name;
  double RunSettings::*value;
};
constexpr NamedSetting named_settings[] = {{"activation's alpha", &RunSettings::alpha},
                                           {"activation's beta", &RunSettings::beta},
                                           {"activation's limit", &RunSettings::limit},
                                           {"routed scaling factor", &RunSettings::scaling}};

/// The settings in OUT's config.json, which engines read.
RunSettings settings_in_config(const PackedCheckpoint& p) {
  Checkpoint changed = p.manifest.source;
  Problems problems;
  const std::string path = p.held.path(config_name, problems);
  problems.throw_if_any();
  changed.config = parse_json(read_text(path, 1 << 26, config_name), config_name);
  Json& holder = changed.config.contains("quantization_config") ? changed.config : changed.config["text_config"];
  Json& quantization = holder["quantization_config"];
  if (quantization.contains("source_quantization_config"))
    quantization = Json(quantization["source_quantization_config"]);
  Problems reported_elsewhere;
  return settings_of(recognise(changed, p.manifest.options.model, reported_elsewhere));
}

/// The settings in the manifest's set, which loaders read.
RunSettings settings_in_manifest(const Json& set_model, const RunSettings& otherwise) {
  const Json activation = set_model.value("activation", Json::object());
  return {activation.value("alpha", otherwise.alpha), activation.value("beta", otherwise.beta),
          activation.value("limit", otherwise.limit), set_model.value("routed_scaling_factor", otherwise.scaling)};
}

}  // namespace

RunSettings settings_of(const Model& m) {
  return {m.activation.alpha, m.activation.beta, m.activation.limit, m.router.scaling};
}

RunSettings settings_to_run(const PackedCheckpoint& p, const Json& set_model, const RunSettings& source,
                            Problems& problems) {
  RunSettings run = source;
  const auto take = [&](const char* file, const RunSettings& stated) {
    for (const NamedSetting& s : named_settings) {
      if (stated.*s.value == source.*s.value) continue;
      problems.error(file, "{} {}, the source's is {}", s.name, stated.*s.value, source.*s.value);
      run.*s.value = stated.*s.value;
    }
  };
  take(manifest_name, settings_in_manifest(set_model, source));
  if (p.held.holds(config_name)) take(config_name, settings_in_config(p));
  return run;
}

void check_order(const Json& set_model, W13Order read, int64_t half, Problems& problems) {
  const Json rows = set_model.value("w13_rows", Json::object());
  const int64_t stated = rows.value("block", int64_t(read.block)), block = stated == half ? 0 : stated;
  const std::string read_first = read.up_first ? "up" : "gate", first = rows.value("first", read_first);
  if (block != read.block || first != read_first)
    problems.error(manifest_name, "w13_rows are blocks of {}, {} first; the kernel reads blocks of {}, {} first", block,
                   first, read.block, read_first);
}

}  // namespace mxfp4
