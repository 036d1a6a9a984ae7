#include "src/packed/canary.h"
#include "src/packed/checksums.h"
#include "src/packed/manifest.h"
#include "src/packed/manifest_format.h"
#include "src/packed/tables.h"

namespace mxfp4 {

namespace {

size_t index_of(const Plan& plan, const Tensor& t) { return size_t(&t - plan.checkpoint->tensors.data()); }

Json source_of(const Plan& plan, const TensorSums& sums, const ManifestOptions& options) {
  const Checkpoint& ck = *plan.checkpoint;
  Json out = {{"model_type", plan.model->model_type},
              {"family", plan.model->family},
              {"fingerprint", fingerprint_of(plan, sums.source)}};
  visit_recorded(options.model, [&](const char* name, const auto& value) {
    if (value != std::decay_t<decltype(value)>()) out[name] = value;
  });
  Json& files = out["files"] = Json::array();
  for (const Shard& s : ck.shards) files.push_back({{"name", s.name}, {"bytes", s.state.bytes}});
  Json published = Json::array();
  for (const PublishedFile& f : options.published)
    published.push_back(
        {{"name", f.name}, {"bytes", f.bytes}, {is_sha256(f) ? "sha256" : "git_sha1", f.hash}, {"published_by", f.by}});
  if (options.skips_published || !published.empty()) out["published"] = std::move(published);
  out["config"] = ck.config_text;
  return out;
}

Json activation(const Model& m) {
  return {{"name", m.activation.name},
          {"alpha", m.activation.alpha},
          {"beta", m.activation.beta},
          {"limit", m.activation.limit}};
}

/// The model as recognised in the source.
Json model_of(const Model& m) {
  const Expert& first = m.layers.front().experts.front();
  const Slice &gate = first.gate.codes, &up = first.up.codes;
  const bool one_piece = gate.piece == up.piece;
  const char* const stored = !one_piece                                  ? "separate"
                             : gate.stride > m.layers.front().hidden / 2 ? "interleaved"
                                                                         : "concatenated";
  Json layers = Json::array();
  for (const MoeLayer& l : m.layers)
    layers.push_back({{"namespace", name_of(l.kind)},
                      {"layer", l.index},
                      {"module", l.module},
                      {"hidden", l.hidden},
                      {"intermediate", l.intermediate},
                      {"experts", l.experts.size()}});
  return {{"gate_up", stored},
          {"loaded", m.pairs ? "pairs" : "halves"},
          {"bias", m.bias},
          {"activation", activation(m)},
          {"router",
           {{"scoring", m.router.scoring},
            {"top_k", m.router.top_k},
            {"renormalise", m.router.renormalise},
            {"scaling", m.router.scaling}}},
          {"layers", layers}};
}

Json requires_of(const Backend& b, const Model& m) {
  Json out = Json::object();
  for (const Setting& s : b.requires_)
    if (!s.when || s.when(m)) out[s.name] = s.value;
  out["has_bias"] = m.bias;
  out["activation"] = m.activation.name;
  return out;
}

Json constants_of(const Plan& plan) {
  Json out = Json::array();
  if (!plan.backend->constants) return out;
  const MoeLayer& layer = plan.model->layers.front();
  const LayerSize padded = rank_size(*plan.backend, layer, plan.tp_size);
  for (const Constant& c : plan.backend->constants(*plan.model))
    out.push_back({{"name", c.name},
                   {"value", c.value},
                   {"dtype", "F32"},
                   {"shape", c.shape(int64_t(layer.experts.size()), padded)}});
  return out;
}

Json sizes_of(const Plan& plan) {
  const Backend& b = *plan.backend;
  const Model& m = *plan.model;
  const MoeLayer& layer = m.layers.front();
  const LayerSize padded = rank_size(b, layer, plan.tp_size);
  const RowOrder order = b.w13_order(m);
  const Parameter& scale = b.parameter(Role::w13, Part::scales);
  return {{"hidden", layer.hidden},
          {"intermediate", layer.intermediate},
          {"padded_hidden", padded.hidden},
          {"padded_intermediate", padded.intermediate},
          {"w13_rows", {{"block", order.block}, {"first", order.up_first ? "up" : "gate"}}},
          {"activation", activation(m)},
          {"routed_scaling_factor", m.router.scaling},
          {"scale_pad_byte", scale.pad.row.at(0) + scale.add}};
}

}  // namespace

std::vector<Hash> source_checksums(const Plan& plan, const Checksums& sums) {
  std::vector<Hash> out(plan.checkpoint->tensors.size());
  each_source(plan, sums, [&](const SourceSum& s) { out[index_of(plan, s.tensor)] = hash_of_pieces(s.hashes); });
  return out;
}

std::string fingerprint_of(const Plan& plan, const std::vector<Hash>& checksums) {
  Hasher hasher;
  for (size_t i = 0; i < checksums.size(); ++i) {
    const Tensor& t = plan.checkpoint->tensors[i];
    const std::string line =
        fmt::format("{} {} {} {}\n", t.name, name_of(t.dtype), list_text(t.shape), to_hex(checksums[i]));
    hasher.take(line.data(), int64_t(line.size()));
  }
  return to_hex(hasher.hash());
}

TensorSums sums_of(const Plan& plan, const Checksums& sums) {
  TensorSums out;
  out.source = source_checksums(plan, sums);
  for (const Checksums::Packed& p : sums.packed) out.packed.push_back(to_hex(hash_of_pieces(p.slices)));
  each_source(plan, sums, [&](const SourceSum& s) {
    if (s.marks & mark::float_zero) out.float_zeros.insert(s.tensor.name);
  });
  return out;
}

Json facts_of(const Plan& plan, const Json& loss) {
  const Backend& b = *plan.backend;
  Json set = {{"engine", b.engine}, {"backend", b.name}, {"layout_version", b.layout_version}};
  if (!plan.engine_version.empty()) set["engine_version"] = plan.engine_version;
  if (!b.layout_file.empty()) {
    set["needs"] = Json::array({layout_file_need});
    set["layout_file"] = Json::parse(b.layout_file);
  }
  set["requires"] = requires_of(b, *plan.model);
  set["constants"] = constants_of(plan);
  if (b.rewrite) set["loss"] = loss;
  set["moe_tp_size"] = plan.tp_size;
  set["model"] = sizes_of(plan);
  if (has_canary(b)) set["canary"] = fmt::format("packed/canary-{}.safetensors", plan.set);
  set["table"] = set_table_name(plan.set);
  return set;
}

std::string make_manifest(const Plan& plan, const TensorSums& sums, const ManifestOptions& options,
                          const std::vector<ListedFile>& files, const std::vector<ManifestSet>& earlier) {
  Json m = {{"format_version", format_version},
            {"xxh3_128", no_checksum},
            {"tool", {{"name", "mxfp4-pack"}, {"version", options.tool_version}}}};
  m["source"] = source_of(plan, sums, options);
  m["model"] = model_of(*plan.model);
  Json list = Json::array();  // not m["files"].push_back(): without memory that would leave an array of nothing
  for (const ListedFile& f : files)
    list.push_back({{"name", f.name},
                    {"kind", f.kind},
                    {"bytes", f.bytes},
                    {f.holds_tensors() ? "header_xxh3_128" : "xxh3_128", f.checksum}});
  m["files"] = std::move(list);
  Json& sets = m["sets"] = Json::array();
  for (const ManifestSet& s : earlier) sets.push_back(s.facts);
  sets.push_back(facts_of(plan, options.loss));
  m["xxh3_128"] = checksum_of(m.dump(1) + "\n");
  return m.dump(1) + "\n";
}

}  // namespace mxfp4
