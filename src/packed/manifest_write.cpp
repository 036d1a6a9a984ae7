#include <algorithm>

#include "src/packed/canary.h"
#include "src/packed/manifest.h"
#include "src/packed/manifest_format.h"

namespace mxfp4 {

namespace {

std::string json_text(std::string_view s) { return Json(s).dump(); }

const char* hash_key(const PublishedFile& f) { return is_sha256(f) ? "sha256" : "git_sha1"; }

const char* name_of(LayerKind kind) { return kind == LayerKind::mtp ? "mtp" : "model"; }

std::string sizes(const Dims& s) { return fmt::format("[{}]", fmt::join(s, ",")); }

size_t index_of(const Plan& plan, const Tensor& t) { return size_t(&t - plan.checkpoint->tensors.data()); }

class Writer {
 public:
  Writer(const Plan& plan, const TensorSums& sums, const ManifestOptions& options, const TextSink& to)
      : plan_(plan), sums_(sums), options_(options), to_(to) {}

  void run(const std::vector<ListedFile>& files, const EarlierSets& earlier) {
    text_ += fmt::format("{{\n\"format_version\": {},\n\"xxh3_128\": \"{}\",\n", format_version, no_checksum);
    text_ +=
        fmt::format("\"tool\": {{\"name\": \"mxfp4-pack\", \"version\": {}}},\n", json_text(options_.tool_version));
    if (!options_.format.empty()) text_ += fmt::format("\"format\": {},\n", json_text(options_.format));
    if (options_.sha256sums) text_ += "\"sha256sums\": true,\n";
    source(fingerprint_of(plan_, sums_.source));
    model();
    text_ += "\"files\": [\n";
    list(files, [this](const ListedFile& f) {
      return fmt::format("{{\"name\": {}, \"kind\": {}, \"bytes\": {}, \"{}\": \"{}\"}}", json_text(f.name),
                         json_text(f.kind), f.bytes, f.holds_tensors() ? "header_xxh3_128" : "xxh3_128", f.checksum);
    });
    text_ += "],\n\"copied\": [\n";
    copied_tensors(earlier);
    text_ += std::string("],\n") + sets_begin;
    if (earlier.text) {
      flush();
      earlier.text(to_);
      text_ += ",\n";
    }
    set();
    text_ += sets_end;
    flush();
  }

  void run_set() {
    set();
    flush();
  }

 private:
  template <class T, class F>
  void list(const std::vector<T>& items, F line) {
    for (size_t i = 0; i < items.size(); ++i) {
      text_ += line(items[i]) + (i + 1 < items.size() ? ",\n" : "\n");
      if (int64_t(text_.size()) > text_block) flush();
    }
  }

  void flush() {
    if (!text_.empty()) to_(text_);
    text_.clear();
  }

  /// As one string of JSON, block by block.
  void quote(std::string_view s) {
    text_ += '"';
    while (!s.empty()) {
      size_t bytes = std::min(s.size(), size_t(text_block));
      for (int i = 0; i < 3 && bytes < s.size() && (s[bytes] & 0xC0) == 0x80; ++i) --bytes;  // within a character
      const std::string quoted = json_text(s.substr(0, bytes));
      text_.append(quoted, 1, quoted.size() - 2);
      flush();
      s.remove_prefix(bytes);
    }
    text_ += '"';
  }

  std::string tensor_entry(const Tensor& t) const {
    return fmt::format("\"name\": {}, \"file\": {}, \"dtype\": \"{}\", \"shape\": {}, \"xxh3_128\": \"{}\"",
                       json_text(t.name), json_text(plan_.checkpoint->shard_of(t)), name_of(t.dtype), sizes(t.shape),
                       to_hex(sums_.source[index_of(plan_, t)]));
  }

  void copied_tensors(const EarlierSets& earlier) {
    list(plan_.copied, [&](const CopiedTensor& t) {
      const auto& file = t.file ? plan_.files[size_t(*t.file)].name : earlier.copied.at(t.source->name);
      return fmt::format("{{{}, \"offset\": {}, \"copy\": {}}}", tensor_entry(*t.source), t.source->offset,
                         json_text(file));
    });
  }

  std::string packed_entry(const PackedTensor& t) const {
    const MoeLayer& layer = plan_.model->layers[size_t(t.layer)];
    const Parameter& p = *t.parameter;
    std::string out = fmt::format(
        "{{\"name\": {}, \"parameter\": \"{}\", \"namespace\": \"{}\", \"layer\": {}, \"rank\": {}, \"file\": {}, "
        "\"dtype\": \"{}\", \"torch_dtype\": \"{}\", \"shape\": {}, ",
        json_text(t.name), p.name, name_of(layer.kind), layer.index, t.rank,
        json_text(plan_.files[size_t(t.file)].name), name_of(p.dtype), p.torch_dtype, sizes(t.shape));
    if (p.view) {
      const View v = p.view(t.shape);
      out += fmt::format("\"view\": {{\"dtype\": \"{}\", \"shape\": {}, \"strides\": {}}}, ", v.torch_dtype,
                         sizes(v.shape), sizes(v.strides));
    }
    if (p.object)
      out += fmt::format("\"triton\": {}, ", p.object(int64_t(layer.experts.size()), plan_.padded_shape(t)).dump());
    out += fmt::format(
        "\"layout\": \"{}\", \"role\": \"{}\", \"part\": \"{}\", \"experts\": {}, \"xxh3_128\": \"{}\", "
        "\"source\": [",
        name_of(p.layout), name_of(t.role), name_of(t.part), layer.experts.size(),
        sums_.packed[size_t(&t - plan_.packed.data())]);
    const auto sources = sources_of(plan_, t);
    for (size_t s = 0; s < sources.size(); ++s)
      out += fmt::format("{}{{{}{}}}", s ? ", " : "", tensor_entry(*sources[s]),
                         sums_.float_zeros.count(sources[s]->name) ? ", \"zero_scale\": 0.0" : "");
    return out + "]}";
  }

  void source(const std::string& fingerprint) {
    const Checkpoint& ck = *plan_.checkpoint;
    text_ += fmt::format("\"source\": {{\"model_type\": {}, \"family\": {}, \"fingerprint\": \"{}\",\n",
                         json_text(plan_.model->model_type), json_text(plan_.model->family), fingerprint);
    if (!options_.gate_up.empty()) text_ += fmt::format("\"gate_up\": {},\n", json_text(options_.gate_up));
    if (options_.allow_nan_scales) text_ += "\"allow_nan_scales\": true,\n";
    if (options_.allow_incomplete) text_ += "\"allow_incomplete\": true,\n";
    text_ += "\"files\": [\n";
    list(ck.shards, [](const Shard& s) {
      return fmt::format("{{\"name\": {}, \"bytes\": {}}}", json_text(s.name), s.state.bytes);
    });
    text_ += "],\n";
    if (options_.skips_published || !options_.published.empty()) published();
    text_ += fmt::format("\"config\": {},\n\"index\": ", json_text(ck.config_text));
    if (ck.index.path.empty())
      quote(ck.index.kept);
    else
      quote(ck.index.read());
    text_ += "},\n";
  }

  void published() {
    text_ += "\"published\": [\n";
    list(options_.published, [](const PublishedFile& f) {
      return fmt::format("{{\"name\": {}, \"bytes\": {}, \"{}\": \"{}\", \"published_by\": {}}}", json_text(f.name),
                         f.bytes, hash_key(f), f.hash, json_text(f.by));
    });
    text_ += "],\n";
  }

  /// What was recognised in the source.
  void model() {
    const Model& m = *plan_.model;
    const Expert& first = m.layers.front().experts.front();
    const Slice &gate = first.gate.codes, &up = first.up.codes;
    const bool one_piece = gate.tensor == up.tensor && gate.piece == up.piece;
    const char* const stored = !one_piece                                  ? "separate"
                               : gate.stride > m.layers.front().hidden / 2 ? "interleaved"
                                                                           : "concatenated";
    text_ += fmt::format("\"model\": {{\"gate_up\": \"{}\", \"loaded\": \"{}\", \"bias\": {},\n", stored,
                         m.pairs ? "pairs" : "halves", m.bias);
    const Json router = {{"scoring", m.router.scoring},
                         {"top_k", m.router.top_k},
                         {"renormalise", m.router.renormalise},
                         {"scaling", m.router.scaling}};
    text_ += fmt::format("\"activation\": {},\n\"router\": {},\n\"layers\": [\n", activation(m).dump(), router.dump());
    list(m.layers, [](const MoeLayer& l) {
      return fmt::format(
          "{{\"namespace\": \"{}\", \"layer\": {}, \"module\": {}, \"hidden\": {}, \"intermediate\": {}, "
          "\"experts\": {}}}",
          name_of(l.kind), l.index, json_text(l.module), l.hidden, l.intermediate, l.experts.size());
    });
    text_ += "]},\n";
  }

  static Json activation(const Model& m) {
    return {{"name", m.activation.name},
            {"alpha", m.activation.alpha},
            {"beta", m.activation.beta},
            {"limit", m.activation.limit}};
  }

  void set() {
    const Backend& b = *plan_.backend;
    const Model& m = *plan_.model;
    text_ += fmt::format("{{\n\"engine\": \"{}\", \"backend\": \"{}\", \"layout_version\": \"{}\",\n", b.engine, b.name,
                         b.layout_version);
    if (!plan_.engine_version.empty())
      text_ += fmt::format("\"engine_version\": {},\n", json_text(plan_.engine_version));
    if (!b.layout_file.empty())
      text_ += fmt::format("\"needs\": [\"{}\"],\n\"layout_file\": {},\n", layout_file_need, b.layout_file);
    Json needs = Json::object();
    for (const Setting& s : b.requires_)
      if (!s.when || s.when(m)) needs[s.name] = s.value;
    needs["has_bias"] = m.bias;
    needs["activation"] = m.activation.name;
    text_ += fmt::format("\"fits\": {},\n\"requires\": {},\n\"constants\": {},\n", to_json(fits_of(b)).dump(),
                         needs.dump(), constants().dump());
    if (b.rewrite) text_ += fmt::format("\"loss\": {},\n", options_.loss.dump());
    text_ += fmt::format("\"moe_tp_size\": {}, \"ranks\": [{}],\n", plan_.tp.size, fmt::join(plan_.tp.ranks, ","));
    const MoeLayer& layer = m.layers.front();
    const LayerSize padded = rank_size(b, layer, plan_.tp.size);
    const RowOrder order = b.w13_order(m);
    const Parameter& scale = b.parameter(Role::w13, Part::scales);
    const Json model = {
        {"hidden", layer.hidden},
        {"intermediate", layer.intermediate},
        {"padded_hidden", padded.hidden},
        {"padded_intermediate", padded.intermediate},
        {"w13_rows", {{"block", order.block}, {"first", order.up_first ? "up" : "gate"}}},
        {"activation", activation(m)},
        {"routed_scaling_factor", m.router.scaling},
        {"scale_pad_byte", scale.pad.row.at(0) + scale.add},
    };
    text_ += fmt::format("\"model\": {},\n", model.dump());
    if (has_canary(b)) text_ += fmt::format("\"canary\": \"packed/canary-{}.safetensors\",\n", plan_.set);
    text_ += "\"tensors\": [\n";
    list(plan_.packed, [this](const PackedTensor& t) { return packed_entry(t); });
    text_ += "]\n}";
  }

  Json constants() const {
    Json out = Json::array();
    if (!plan_.backend->constants) return out;
    const MoeLayer& layer = plan_.model->layers.front();
    const auto experts = int64_t(layer.experts.size());
    const LayerSize padded = rank_size(*plan_.backend, layer, plan_.tp.size);
    for (const Constant& c : plan_.backend->constants(*plan_.model))
      out.push_back({{"name", c.name}, {"value", c.value}, {"dtype", "F32"}, {"shape", c.shape(experts, padded)}});
    return out;
  }

  const Plan& plan_;
  const TensorSums& sums_;
  const ManifestOptions& options_;
  const TextSink& to_;
  std::string text_;  // the next block
};

}  // namespace

std::vector<Hash> source_checksums(const Plan& plan, const Checksums& sums) {
  std::vector<Hash> out(plan.checkpoint->tensors.size());
  for (size_t i = 0; i < plan.copied.size(); ++i)
    out[index_of(plan, *plan.copied[i].source)] = hash_of_pieces(sums.copied[i]);
  for (size_t i = 0; i < plan.packed.size(); i += plan.tp.ranks.size()) {
    const auto sources = sources_of(plan, plan.packed[i]);
    for (size_t s = 0; s < sources.size(); ++s)
      out[index_of(plan, *sources[s])] = hash_of_pieces(sums.packed[i].sources[s]);
  }
  return out;
}

std::string fingerprint_of(const Plan& plan, const std::vector<Hash>& checksums) {
  Hasher hasher;
  for (size_t i = 0; i < checksums.size(); ++i) {
    const Tensor& t = plan.checkpoint->tensors[i];
    const std::string line =
        fmt::format("{} {} {} {}\n", t.name, name_of(t.dtype), sizes(t.shape), to_hex(checksums[i]));
    hasher.take(line.data(), int64_t(line.size()));
  }
  return to_hex(hasher.hash());
}

TensorSums sums_of(const Plan& plan, const Checksums& sums) {
  TensorSums out;
  out.source = source_checksums(plan, sums);
  for (size_t i = 0; i < plan.packed.size(); ++i) {
    out.packed.push_back(to_hex(hash_of_pieces(sums.packed[i].slices)));
    if (plan.packed[i].rank != plan.tp.ranks.front()) continue;
    const auto sources = sources_of(plan, plan.packed[i]);
    for (size_t s = 0; s < sources.size(); ++s)
      if (sums.packed[i].marks[s] & mark::float_zero) out.float_zeros.insert(sources[s]->name);
  }
  return out;
}

void make_manifest(const Plan& plan, const TensorSums& sums, const ManifestOptions& options,
                   const std::vector<ListedFile>& files, const EarlierSets& earlier, const TextSink& to) {
  Writer(plan, sums, options, to).run(files, earlier);
}

void make_set(const Plan& plan, const TensorSums& sums, const ManifestOptions& options, const TextSink& to) {
  Writer(plan, sums, options, to).run_set();
}

void write_manifest(Fd file, const TextSource& make) {
  Hasher hasher;
  int64_t at = 0, digits = -1;
  make([&](std::string_view text) {
    const size_t found = digits < 0 ? text.find(no_checksum) : text.npos;
    if (found != text.npos) digits = at + int64_t(found);
    file.write(text.data(), int64_t(text.size()), at);
    hasher.take(text.data(), int64_t(text.size()));
    at += int64_t(text.size());
  });
  const std::string sum = to_hex(hasher.hash());
  file.write(sum.data(), int64_t(sum.size()), digits);
  file.sync();
  file.close();
}

}  // namespace mxfp4
