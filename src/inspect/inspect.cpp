#include "src/inspect/inspect.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "src/backends/backend.h"
#include "src/backends/gpu.h"
#include "src/backends/loaders.h"
#include "src/backends/serve.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/table.h"
#include "src/base/terminal.h"
#include "src/models/complete.h"
#include "src/packed/companions.h"
#include "src/packed/packed_checkpoint.h"

namespace mxfp4 {

namespace {

struct Count {
  int64_t tensors = 0, bytes = 0;
};
void operator+=(Count& sum, const Tensor& t) {
  ++sum.tensors;
  sum.bytes += t.bytes;
}
Count operator-(const Count& a, const Count& b) { return {a.tensors - b.tensors, a.bytes - b.bytes}; }
std::string describe(const Count& c) {
  return fmt::format("{}, {}", counted(c.tensors, "tensor"), human_bytes(c.bytes));
}
Json json_of(const Count& c) { return {{"tensors", c.tensors}, {"bytes", c.bytes}}; }

std::map<std::string, Count> by_dtype(const Checkpoint& ck) {
  std::map<std::string, Count> out;
  for (const Tensor& t : ck.tensors) out[name_of(t.dtype)] += t;
  return out;
}

Json layer_json(const MoeLayer& l) {
  return {{"module", l.module}, {"namespace", l.kind == LayerKind::mtp ? "mtp" : "model"},
          {"layer", l.index},   {"experts", l.experts.size()},
          {"hidden", l.hidden}, {"intermediate", l.intermediate}};
}

Count total(const Checkpoint& ck) {
  Count all;
  for (const Tensor& t : ck.tensors) all += t;
  return all;
}

Count rest(const Model& m) {
  Count all;
  for (const Tensor* t : m.rest) all += *t;
  return all;
}

Served served(const PackedCheckpoint& p, size_t i) {
  const Plan& plan = p.sets[i].plan;
  return {.backend = *plan.backend,
          .model = p.model,
          .release = p.manifest.sets[i].engine_version,
          .tp_size = plan.tp_size,
          .is_first = i == 0,
          .load = {total(p.manifest.source).bytes, memory_of("")}};
}

Json sets_json(const PackedCheckpoint& p, const std::string& out) {
  Json sets = Json::array();
  for (size_t i = 0; i < p.sets.size(); ++i) {
    const PackedSet& s = p.sets[i];
    sets.push_back({{"engine", s.plan.backend->engine},
                    {"backend", s.plan.backend->name},
                    {"layout_version", s.plan.backend->layout_version},
                    {"moe_tp_size", s.plan.tp_size},
                    {"tensors", s.plan.packed.size()},
                    {"bytes", s.plan.packed_bytes},
                    {"fits", to_json(fits_of(*s.plan.backend))},
                    {"loader", loader_since(*s.plan.backend, p.model.family)},
                    {"tested_tp_sizes", tested_tp_sizes(*s.plan.backend, p.model.family)},
                    {"requires", describe_settings(*s.plan.backend, &p.model)},
                    {"serve", serve_command(served(p, i), out)}});
  }
  return sets;
}

/// `sets`: the sets of the output whose source is ck, or null.
void print_json(const Checkpoint& ck, const Model& m, const Problems& problems, const Json& sets) {
  const bool recognised = !m.family.empty();
  const Count all = total(ck), pass = rest(m);
  Json dtypes = Json::object(), layers = Json::array();
  for (const auto& [name, c] : by_dtype(ck)) dtypes[name] = json_of(c);
  for (const MoeLayer& l : m.layers) layers.push_back(layer_json(l));
  Json j = {{"checkpoint", ck.dir},
            {"family", m.family},
            {"model_type", m.model_type},
            {"shards", ck.shards.size()},
            {"tensors", all.tensors},
            {"bytes", all.bytes},
            {"dtypes", dtypes},
            {"convert", recognised ? json_of(all - pass) : Json()},
            {"pass_through", recognised ? json_of(pass) : Json()},
            {"layers", layers},
            {"notes", m.notes},
            {"warnings", problems.warnings()},
            {"problems", problems.errors()}};
  if (!sets.is_null()) j["sets"] = sets;
  if (problems.any()) j["error"] = json_of(Error(ErrorKind::input, problems.errors()));
  print_out("{}\n", one_line(j));
}

void print_line(const std::string& text) { print_out("{}\n", fitted(text)); }

/// Layers of equal size on one line: "model layers 0-23: 32 experts, hidden 2880, intermediate 2880".
void print_layers(const Model& m) {
  for (size_t i = 0; i < m.layers.size();) {
    const MoeLayer& a = m.layers[i];
    size_t end = i + 1;
    while (end < m.layers.size() && m.layers[end].kind == a.kind &&
           m.layers[end].index == m.layers[end - 1].index + 1 && m.layers[end].experts.size() == a.experts.size() &&
           m.layers[end].hidden == a.hidden && m.layers[end].intermediate == a.intermediate)
      ++end;
    const int64_t last = m.layers[end - 1].index;
    print_line(fmt::format("{} {}: {}, hidden {}, intermediate {}{}",
                           a.kind == LayerKind::mtp ? "MTP"
                           : last == a.index        ? "layer"
                                                    : "layers",
                           last == a.index ? std::to_string(a.index) : fmt::format("{}-{}", a.index, last),
                           counted(a.experts.size(), "expert"), a.hidden, a.intermediate, m.bias ? ", bias" : ""));
    i = end;
  }
}

void print_text(const std::string& title, const Checkpoint& ck, const Model& m) {
  const Count all = total(ck);
  print_line(fmt::format("{}: {} ({}), {} in {}", printable(title), m.family.empty() ? "not recognised" : m.family,
                         m.model_type.empty() ? "no model_type" : printable(m.model_type), describe(all),
                         counted(ck.shards.size(), "shard")));
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, c] : by_dtype(ck))
    rows.push_back({"  " + name, counted(c.tensors, "tensor"), human_bytes(c.bytes)});
  for (const std::string& line : table(rows, "<><")) print_out("{}\n", line);
  print_layers(m);
  if (m.family.empty()) return;
  const Count pass = rest(m), convert = all - pass;
  print_line(fmt::format("converted: {}; copied unchanged: {}", describe(convert), describe(pass)));
}

/// The releases that read a set, and the tested sizes, for example: "vllm from 0.26.0 on; tested for gpt-oss at
/// tensor-parallel sizes 1, 2, not at 8".
std::string describe_loader(const Served& set) {
  const Backend& b = set.backend;
  const std::string any = loader_since(b), since = loader_since(b, set.model.family);
  if (!has_loader(b, set.model.family, "")) return fmt::format("no loader reads it for {}", set.model.family);
  if (since.empty()) return fmt::format("{} from {} on; not tested for {}", b.engine, any, set.model.family);
  const std::vector<int> sizes = tested_tp_sizes(b, set.model.family);
  const bool is_tested = std::find(sizes.begin(), sizes.end(), set.tp_size) != sizes.end();
  return fmt::format("{} from {} on; tested for {} at tensor-parallel size{} {}{}", b.engine, since, set.model.family,
                     sizes.size() == 1 ? "" : "s", fmt::join(sizes, ", "),
                     is_tested ? "" : fmt::format(", not at {}", set.tp_size));
}

/// Prints one set: its name and size, the releases that load it, and the command that serves it.
void print_set(const PackedCheckpoint& p, size_t i, const std::string& out) {
  const Plan& plan = p.sets[i].plan;
  const Backend& b = *plan.backend;
  print_line(fmt::format("{}: {}, layout version {}: {}", toned(Tone::heading, fmt::format("set {}", i)),
                         describe(p.manifest.sets[i]), b.layout_version,
                         describe(Count{int64_t(plan.packed.size()), plan.packed_bytes})));
  const auto line = [](const char* what, const std::string& text) {
    print_out("  {:<9} {}\n", what, fitted(text, 12));
  };
  if (const std::string fits = describe_fits(b, p.model.family); !fits.empty())
    line(b.layout_file.empty() ? "made for" : "made with", fits);
  const Served set = served(p, i);
  const bool is_read = has_loader(b, p.model.family, set.release);
  if (const std::string settings = describe_who_sets(b, p.model, is_read); !settings.empty())
    line("settings", settings);
  line("loader", describe_loader(set));
  const std::string serve = serve_command(set, out);
  if (!serve.empty()) print_out("  serve     {}\n", serve);  // not wrapped, so that it can be copied
}

/// Prints the source of an output, and its sets.
void inspect_output(const InspectOptions& options) {
  Problems problems;
  const auto p = open_packed(options.checkpoint, problems);
  if (p) check_companions(p->manifest.source, problems);
  if (p && !problems.any()) check_complete(p->manifest.source, p->manifest.options.model.allow_incomplete, problems);
  problems.throw_if_any();
  const Checkpoint& ck = p->manifest.source;
  if (options.json) return print_json(ck, p->model, problems, sets_json(*p, options.checkpoint));
  if (verbosity() == Verbosity::quiet) return;
  print_out("{}: an output of mxfp4-pack\n", printable(options.checkpoint));
  print_text("made from", ck, p->model);
  if (p->manifest.options.model.allow_incomplete)
    print_line("incomplete: converted with --allow-incomplete, since tensors were missing or damaged");
  for (size_t i = 0; i < p->sets.size(); ++i) print_set(*p, i, options.checkpoint);
}

}  // namespace

bool inspect(const InspectOptions& options) {
  if (has_manifest(options.checkpoint)) {
    inspect_output(options);
    return true;
  }
  Problems problems;
  const Checkpoint ck = open_checkpoint(options.checkpoint, problems, options.links, Extent::headers);
  const Model m = recognise(ck, options.model, problems);
  if (!m.family.empty()) check_complete(ck, false, problems);
  if (options.json) {
    print_json(ck, m, problems, Json());
    return !problems.any();
  }
  if (verbosity() != Verbosity::quiet) print_text(ck.dir, ck, m);
  if (verbosity() != Verbosity::quiet && !problems.any() && problems.warnings().empty() && !m.family.empty())
    print_line("lacks nothing that config.json promises; contents are not read, convert checks them");
  for (const std::string& line : m.notes) note(line);
  for (const std::string& line : problems.warnings()) warn(line);
  problems.throw_if_any();
  return true;
}

}  // namespace mxfp4
