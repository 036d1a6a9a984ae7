#include "src/inspect/layout.h"

#include "src/backends/engine.h"
#include "src/cli/checkpoint_path.h"
#include "src/cli/commands.h"
#include "src/cli/convert_options.h"
#include "src/packed/manifest.h"

namespace mxfp4::cli {

namespace {

/// What a new file describes.
void add_source(CLI::App* app, LayoutOptions& o) {
  app->option_defaults()->group("To make FILE");
  auto* backend =
      add(app, {.name = "--backend", .value = "NAME", .help = "Make FILE from this backend", .manual = R"(Make
.Ar FILE
from this backend.)"},
          o.backend);
  auto* engine = add(app,
                     {.name = "--engine",
                      .value = engine_list("|"),
                      .help = "Engine of the backend, or a release such as vllm==0.33.0"},
                     o.engine)
                     ->check(engine_name());
  auto* model =
      add(app, {.name = "--model", .value = "CKPT", .help = "Use the layer sizes of this checkpoint"}, o.checkpoint);
  add(app, {.name = "--layout-version", .value = "NAME", .help = "Choose among the layouts of the backend"},
      o.layout_version)
      ->needs(backend);
  add(app,
      {.name = "--tp-size",
       .value = "N",
       .help = "Use the layer sizes on one of N ranks",
       .manual = R"(Use the layer sizes on one of
.Ar N
ranks [1].)"},
      o.tp_size)
      ->check(range(1, 1024))
      ->capture_default_str();
  add_gate_up(app, o.model);
  backend->needs(engine)->needs(model);
  engine->needs(backend);
  model->needs(backend);
}

}  // namespace

void add_layout(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("layout", "Describe a layout file, or make one from a backend");
  static LayoutOptions o;
  app->description(
      "Describe a layout file, or make one from a backend\n\nA layout file describes the place of every bit of a "
      "layer, for convert. With --backend, FILE is made.");
  app->footer(
      "mxfp4-pack layout learned.json\n"
      "mxfp4-pack layout marlin.json --backend marlin --engine vllm --model gpt-oss-20b/");
  app->add_option("FILE", o.file, "Layout file (man mxfp4-pack-layout)")->required()->type_name("");
  add_source(app, o);
  add_common(app, common, run, [&] {
    o.json = common.json;
    if (!o.engine.empty()) settle_engine(o.engine, o.engine_version);
    if (!o.checkpoint.empty()) o.checkpoint = checkpoint_path(o.checkpoint);
    if (!o.backend.empty()) check_not_in_output(o.file);
    layout(o);
    return 0;
  });
}

}  // namespace mxfp4::cli
