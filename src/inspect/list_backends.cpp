#include "src/inspect/list_backends.h"

#include <algorithm>
#include <optional>
#include <set>

#include "kernels/pack/device.h"
#include "src/backends/engine.h"
#include "src/backends/gpu.h"
#include "src/backends/loaders.h"
#include "src/backends/missing.h"
#include "src/backends/select.h"
#include "src/backends/serve.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/table.h"
#include "src/base/terminal.h"

namespace mxfp4 {

namespace {

bool holds(const Backend& b, const Model& model) {
  if (b.takes && !b.takes(model)) return false;
  return std::all_of(model.layers.begin(), model.layers.end(),
                     [&](const MoeLayer& l) { return refusal(b, model, l, 1).empty(); });
}

std::vector<const Backend*> filtered(const BackendFilter& filter, const Model* model) {
  std::vector<const Backend*> out;
  for (const Backend* b : backends())
    if ((filter.engine.empty() || filter.engine == b->engine) &&
        (filter.release.empty() || b->releases.contains(filter.release)) &&
        (filter.gpu.empty() || runs_on(gpus_in(*b, filter.release), filter.gpu)) && (!model || holds(*b, *model)))
      out.push_back(b);
  return out;
}

/// Whether this is the listed layout version of its backend that convert writes by default for the filter's release and
/// GPU.
bool is_default(const Backend& b, const std::vector<const Backend*>& list, const BackendFilter& filter,
                const Model* model) {
  if (model) {
    const BackendChoice chosen =
        choose_backend(b.name, *model, {.engine = b.engine, .release = filter.release, .gpu = filter.gpu});
    if (!chosen.layout_version.empty()) return b.layout_version == chosen.layout_version;
    return &b == default_backend(b.name, b.engine, *model, filter.release);
  }
  const std::string release = or_newest(filter.release, b.engine);
  std::vector<const Backend*> forms;
  std::copy_if(list.begin(), list.end(), std::back_inserter(forms),
               [&](const Backend* form) { return b.name == form->name && b.engine == form->engine; });
  const auto rank = [&](const Backend& form) {  // first: the release loads it; second: it is for every model
    return 2 * form.releases.contains(release) + !form.takes;
  };
  const auto best = std::max_element(forms.begin(), forms.end(),
                                     [&](const Backend* x, const Backend* y) { return rank(*x) < rank(*y); });
  return (*best)->layout_version == b.layout_version;
}

void print_json(const std::vector<const Backend*>& list, const BackendFilter& filter, const Model* model) {
  Json all = Json::array();
  for (const Backend* b : list) {
    Json needs = Json::object();
    for (const Setting& s : b->requires_)
      if (!model || !s.when || s.when(*model))
        needs[s.name] = needs.contains(s.name) ? needs[s.name].get<std::string>() + " or " + s.value : s.value;
    all.push_back({{"backend", b->name},
                   {"engine", b->engine},
                   {"layout_version", b->layout_version},
                   {"default", is_default(*b, list, filter, model)},
                   {"gpu", gpus_in(*b, filter.release)},
                   {"summary", b->summary},
                   {"hidden_multiple", b->multiple.hidden},
                   {"intermediate_multiple", b->multiple.intermediate},
                   {"loader", loader_since(*b, model ? model->family : "")},
                   {"fits", to_json(fits_of(*b))},
                   {"requires", needs}});
  }
  print_out("{}\n", one_line(Json{{"backends", all}, {"cuda", cuda_description()}}));
}

/// Printed with -v below a backend's row.
void print_details(const Backend& b, const Model* model) {
  print_out("    {}\n", fitted(b.summary, 4));
  for (const Fit& f : fits_of(b)) print_out("    {}\n", fitted(f.library + " " + f.range, 4));
  if (const std::string settings = describe_settings(b, model); !settings.empty())
    print_out("    {}\n", fitted("requires " + settings, 4));
}

void print_table(const std::vector<const Backend*>& list, const BackendFilter& filter, const Model* model) {
  std::vector<std::vector<std::string>> rows = {{"BACKEND", "ENGINE", "LAYOUT", "GPU", "LOADER"}};
  std::vector<const Backend*> listed;
  std::set<std::string> names;  // backends that differ only in their models share a line
  for (const Backend* b : list) {
    if (!names.insert(fmt::format("{} {} {}", b->name, b->engine, b->layout_version)).second) continue;
    const std::string since = loader_since(*b, model ? model->family : "");
    listed.push_back(b);
    rows.push_back({b->name, b->engine,
                    b->layout_version + std::string(is_default(*b, list, filter, model) ? " *" : ""),
                    gpus_in(*b, filter.release), since.empty() ? "none" : since});
  }
  const std::vector<std::string> lines = table(rows, "<<<<<");
  print_out("{}\n", lines.front());
  for (size_t i = 0; i < listed.size(); ++i) {
    print_out("{}\n", lines[i + 1]);
    if (verbosity() == Verbosity::verbose) print_details(*listed[i], model);
  }
}

/// The backend that `--backend auto` chooses, or the reason why it chooses none.
std::string auto_choice(const Model& model, const BackendFilter& filter) {
  try {
    const Deployment to = {.engine = filter.engine, .release = filter.release, .gpu = filter.gpu};
    return "--backend auto chooses " + std::string(select_backend(model, to).backend);
  } catch (const Error& e) {
    return e.lines.front();
  }
}

}  // namespace

void list_backends(const BackendFilter& filter) {
  std::optional<Checkpoint> checkpoint;
  std::optional<Model> model;
  if (!filter.checkpoint.empty()) {
    Problems problems;
    checkpoint = open_checkpoint(filter.checkpoint, problems, Links::stay, Extent::headers);
    model = recognise(*checkpoint, filter.model, problems);
    problems.throw_if_any();
  }
  const Model* m = model ? &*model : nullptr;
  const std::vector<const Backend*> list = filtered(filter, m);
  if (list.empty()) fail(ErrorKind::usage, "nothing of the kind can be written; 'mxfp4-pack backends' lists all");
  if (filter.json) return print_json(list, filter, m);
  print_table(list, filter, m);
  note("* = the layout version that convert writes by default");
  note(fmt::format("LOADER = the first release of the engine that was tested with a loader{}",
                   m ? " for this model" : ", for any model; with --model for that model"));
  if (m && !filter.engine.empty() && !filter.gpu.empty()) note(auto_choice(*m, filter));
  note(cuda_description());
}

}  // namespace mxfp4
