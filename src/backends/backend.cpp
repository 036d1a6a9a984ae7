#include "src/backends/backend.h"

#include <algorithm>

#include "src/backends/registry.h"
#include "src/backends/words.h"

namespace mxfp4 {

const char* name_of(Role role) { return role == Role::w13 ? "w13" : "w2"; }
const char* name_of(Part part) {
  constexpr const char* names[] = {"codes", "scales", "bias", "residual"};
  return names[size_t(part)];
}

const std::vector<const Backend*>& backends() {
  static const auto all = [] {
    std::vector<const Backend*> out;
    for (const std::vector<Backend>* family : registry)
      for (const Backend& b : *family) out.push_back(&b);
    return out;
  }();
  return all;
}

namespace {

bool takes(const Backend& b, const Model* model) { return !model || !b.takes || b.takes(*model); }

/// The engine's releases that load some of the rows, in their order: "0.26.0, 0.27.1 to 0.33.0"; empty: none.
std::string releases_of(const std::vector<const Backend*>& rows, const Engine& engine) {
  std::vector<std::string> spans;
  const char *first = nullptr, *last = nullptr;
  const auto close = [&] {
    if (first) spans.push_back(describe({first, last}, engine.known));
    first = nullptr;
  };
  for (const char* const release : engine.releases)
    if (std::any_of(rows.begin(), rows.end(), [&](const Backend* b) { return b->releases.contains(release); })) {
      first = first ? first : release;
      last = release;
    } else {
      close();
    }
  close();
  return fmt::format("{}", fmt::join(spans, ", "));
}

/// Throws the reason why no backend of this name and engine fits the request: the layout version, the family or the
/// release.
[[noreturn]] void explain(const std::vector<const Backend*>& rows, const std::string& layout_version,
                          const Model* model, const std::string& asked_release) {
  const Backend& first = *rows.front();
  const std::string release = or_newest(asked_release, first.engine);
  std::vector<std::string> versions, own, loaded;  // all; of the model; of these, what the release loads
  std::vector<const Backend*> of_model;
  bool has_version = layout_version.empty();  // of the model
  for (const Backend* b : rows) {
    add_once(versions, b->layout_version);
    if (!takes(*b, model)) continue;
    add_once(own, b->layout_version);
    of_model.push_back(b);
    has_version |= b->layout_version == layout_version;
    if (b->releases.contains(release)) add_once(loaded, b->layout_version);
  }
  const std::string version = layout_version.empty() ? "" : fmt::format("layout version {} of ", layout_version);
  if (!version.empty() && std::find(versions.begin(), versions.end(), layout_version) == versions.end())
    fail(ErrorKind::usage, "backend {} of {} has no layout version '{}', but {}", first.name, first.engine,
         layout_version, fmt::join(own.empty() ? versions : own, ", "));
  if (own.empty() || !has_version)
    fail(ErrorKind::input, "{}backend {} of {} is not for models of family {}{}", version, first.name, first.engine,
         model->family, own.empty() ? "" : fmt::format(", which have {}", fmt::join(own, ", ")));
  if (!loaded.empty())
    fail(ErrorKind::usage, "{} {} does not load {}{}, but {}", first.engine, release, version, first.name,
         fmt::join(loaded, ", "));
  const std::string releases = releases_of(of_model, find_engine(first.engine));
  fail(ErrorKind::usage, "{} {} has no backend {}{}{}", first.engine, release, first.name,
       model ? fmt::format(" for models of family {}", model->family) : "",
       releases.empty() ? "" : fmt::format("; those that have it: {}", releases));
}

std::vector<const Backend*> rows_of(const std::string& name, const std::string& engine) {
  std::vector<const Backend*> rows;
  for (const Backend* b : backends())
    if (name == b->name && engine == b->engine) rows.push_back(b);
  return rows;
}

/// As find_backend(), among the rows of one name and engine. Null if none fits.
const Backend* search(const std::vector<const Backend*>& rows, const std::string& engine,
                      const std::string& layout_version, const Model* model, const std::string& release) {
  const Backend* partial = nullptr;  // a form for some models only, if no model is given
  const Backend* other = nullptr;    // a form that the newest release does not load
  const std::string newest = or_newest("", engine), asked = or_newest(release, engine);
  const bool loads_any =
      std::any_of(rows.begin(), rows.end(), [&](const Backend* b) { return b->releases.contains(newest); });
  for (const Backend* b : rows) {
    if ((!layout_version.empty() && layout_version != b->layout_version) || !takes(*b, model)) continue;
    const bool any = release.empty() && !layout_version.empty();
    if (any || b->releases.contains(asked)) {
      if (model || !b->takes) return b;
      if (!partial) partial = b;
    } else if (!other && release.empty() && !loads_any) {
      other = b;
    }
  }
  return partial ? partial : other;
}

}  // namespace

const Backend& find_backend(const std::string& name, const std::string& engine, const std::string& layout_version,
                            const Model* model, const std::string& release) {
  const std::vector<const Backend*> rows = rows_of(name, engine);
  if (rows.empty()) {
    std::vector<std::string> others;
    for (const Backend* b : backends())
      if (name == b->name) add_once(others, b->engine);
    if (others.empty()) fail(ErrorKind::usage, "no backend '{}'; 'mxfp4-pack backends' lists them", name);
    fail(ErrorKind::usage, "backend {} does not exist for engine '{}', only for {}", name, engine,
         fmt::join(others, ", "));
  }
  if (const Backend* found = search(rows, engine, layout_version, model, release)) return *found;
  explain(rows, layout_version, model, release);
}

const Backend* default_backend(const std::string& name, const std::string& engine, const Model& model,
                               const std::string& release) {
  return search(rows_of(name, engine), engine, "", &model, release);
}

std::string gpus_of(const std::string& name, const std::string& engine, const Model* model) {
  std::vector<std::string> gpus;
  for (const Backend* b : backends()) {
    if (name != b->name || engine != b->engine || !takes(*b, model)) continue;
    for (const std::string& gpu : comma_separated(b->gpu)) add_once(gpus, gpu);
  }
  return fmt::format("{}", fmt::join(gpus, ", "));
}

std::vector<Fit> fits_of(const Backend& b) {
  std::vector<Fit> fits;
  const std::string releases = is_empty(b.releases) ? "" : describe(b.releases, find_engine(b.engine).known);
  if (!releases.empty()) fits.push_back({b.engine, releases, b.tested});
  fits.insert(fits.end(), b.libraries.begin(), b.libraries.end());
  return fits;
}

Json to_json(const std::vector<Fit>& fits) {
  Json out = Json::object();
  for (const Fit& f : fits) out[f.library] = {{"range", f.range}, {"tested", f.tested}};
  return out;
}

LayerSize rank_share(const MoeLayer& layer, int tp_size) {
  return {layer.hidden, (layer.intermediate / group + tp_size - 1) / tp_size * group};
}

std::string refusal(const Backend& b, const Model& model, const MoeLayer& layer, int tp_size) {
  return b.refuse ? b.refuse(model, rank_share(layer, tp_size)) : "";
}

std::string share_refusal(const Backend& b, const MoeLayer& layer, int tp_size) {
  if (!b.needs_whole_groups || layer.intermediate % (int64_t(tp_size) * group) == 0) return {};
  return fmt::format("intermediate {} is {:g} rows on each of {} ranks, a multiple of {} is needed", layer.intermediate,
                     double(layer.intermediate) / tp_size, tp_size, group);
}

Shape matrix_size(Role role, LayerSize size) {
  return role == Role::w13 ? Shape{2 * size.intermediate, size.hidden} : Shape{size.hidden, size.intermediate};
}

int64_t scale_bytes(const Parameter& p) { return p.values ? p.values->width() : 1; }

int64_t row_bytes(Part part, const Parameter& p, int64_t columns) {
  if (part == Part::codes) return columns / 2;
  if (part == Part::scales) return columns / group * scale_bytes(p);
  return bits_of(p.dtype) / 8;  // bias, residual
}

LayerSize padded_size(const Backend& b, LayerSize size) {
  return {round_up(size.hidden, b.multiple.hidden), round_up(size.intermediate, b.multiple.intermediate)};
}

RowOrder loaded_order(const Model& model) { return {model.pairs ? 1 : 0, false}; }

std::string describe(RowOrder o) {
  const char* first = o.up_first ? "up" : "gate";
  return o.block == 0   ? fmt::format("halves, {} first", first)
         : o.block == 1 ? fmt::format("pairs, {} first", first)
                        : fmt::format("blocks of {}, {} first", o.block, first);
}

}  // namespace mxfp4
