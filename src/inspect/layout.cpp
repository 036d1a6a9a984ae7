#include "src/inspect/layout.h"

#include <filesystem>

#include "src/backends/layout_file.h"
#include "src/backends/select.h"
#include "src/backends/serve.h"
#include "src/backends/unread.h"
#include "src/base/log.h"
#include "src/base/new_file.h"
#include "src/base/terminal.h"
#include "src/plan/plan.h"

namespace mxfp4 {

namespace {

std::string describe(LayerSize real, LayerSize padded) {
  const auto side = [](const char* name, int64_t a, int64_t b) {
    return a == b ? fmt::format("{} {}", name, a) : fmt::format("{} {} padded to {}", name, a, b);
  };
  return side("hidden", real.hidden, padded.hidden) + ", " +
         side("intermediate", real.intermediate, padded.intermediate);
}

/// "marlin.codes" or "no built-in layout: 3 modes".
std::string describe(const Layout& layout) {
  const auto* given = std::get_if<ByModes>(&layout);
  if (!given) return name_of(layout);
  const ModeLayout& m = *given->modes;
  return fmt::format("no built-in layout: {} modes{}{}", m.modes.size(),
                     m.repeats.empty() ? "" : ", pads that repeat values",
                     m.copies > 1 ? fmt::format(", every bit stored {} times", m.copies) : "");
}

/// ", bytes + 6", or the width of the values and their scales.
std::string describe_scales(const Parameter& p) {
  if (p.add) return fmt::format(", bytes + {}", p.add);
  if (!p.values) return "";
  return fmt::format(", values of {} for scales {}", counted(p.values->width(), "byte"), p.values->domain());
}

const Backend* same_as(const Backend& file) {
  const Backend *halves = find_same(file, false), *pairs = find_same(file, true);
  if (!halves || !pairs) return halves ? halves : pairs;
  return file.engine == pairs->engine && file.name == pairs->name ? pairs : halves;
}

Json tensor_of(const Backend& b, Role role, Part part) {
  const Parameter& p = b.parameter(role, part);
  Json j = {{"role", name_of(role)}, {"part", name_of(part)}, {"name", p.name}, {"layout", name_of(p.layout)}};
  if (p.order) j["rows"] = describe(*p.order);
  if (p.values) j["values"] = {{"width", p.values->width()}, {"scales", p.values->domain()}};
  if (const int64_t copies = copies_of(p.layout); copies > 1) j["copies"] = copies;
  return j;
}

void print(const Backend& b, bool json) {
  const Backend* same = same_as(b);
  if (json) {
    Json j = {{"name", b.name}, {"engine", b.engine}, {"layout_version", b.layout_version}, {"tensors", Json::array()}};
    for (Role role : roles)
      for (Part part : parts)
        if (!b.parameter(role, part).name.empty()) j["tensors"].push_back(tensor_of(b, role, part));
    j["same_as"] =
        same ? Json{{"backend", same->name}, {"engine", same->engine}, {"layout_version", same->layout_version}}
             : Json();
    print_out("{}\n", one_line(j));
    return;
  }
  const auto line = [](const std::string& text) { print_out("{}\n", fitted(text)); };
  line(fmt::format("{} of {}, {}; {}", b.name, b.engine, b.layout_version, describe(b.only, b.multiple)));
  for (const Fit& f : b.libraries) line(fmt::format("made with {} {}", printable(f.library), printable(f.range)));
  for (Role role : roles)
    for (Part part : parts) {
      const Parameter& p = b.parameter(role, part);
      if (p.name.empty()) continue;
      line(fmt::format("{} {}: {}, {}{}{}", name_of(role), name_of(part), p.name, describe(p.layout),
                       p.order ? ", " + describe(*p.order) : "", describe_scales(p)));
    }
  line(same ? fmt::format("the same bytes as {} of {}, layout version {}", same->name, same->engine,
                          same->layout_version)
            : "no built-in backend has these bytes; 'verify' goes up to level bytes");
}

void make(const LayoutOptions& o) {
  Problems problems;
  const Checkpoint checkpoint = open_checkpoint(o.checkpoint, problems, Links::stay, Extent::headers);
  const Model model = recognise(checkpoint, o.model, problems);
  problems.throw_if_any();
  const Backend& b = find_backend(o.backend, o.engine, o.layout_version, &model, o.engine_version);
  make_plan(checkpoint, model, b, {.tp_size = o.tp_size}, problems);  // checks whether this conversion is possible
  problems.throw_if_any();
  check_shares(b, model, {.engine = o.engine, .release = o.engine_version, .gpu = "", .tp_size = o.tp_size});
  const MoeLayer& layer = model.layers.front();
  const NewFile file(o.file);
  const std::string text = write_layout(b, model, rank_share(layer, o.tp_size));
  read_layout(text, o.file);
  file.write(text);
  if (!o.json)
    note(fmt::format("{}: made; convert by it with: mxfp4-pack convert CKPT OUT --layout {} --no-loader", o.file,
                     shell_word(o.file)));
}

}  // namespace

void layout(const LayoutOptions& options) {
  if (options.backend.empty()) return print(read_layout_file(options.file), options.json);
  make(options);
}

}  // namespace mxfp4
