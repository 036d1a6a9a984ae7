#include "src/inspect/layout.h"

#include "src/backends/engine.h"
#include "src/cli/checkpoint_path.h"
#include "src/cli/commands.h"
#include "src/cli/convert_options.h"

namespace mxfp4::cli {

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
  app->option_defaults()->group("To make FILE");
  auto* backend = app->add_option("--backend", o.backend, "Make FILE from this backend")->type_name("NAME");
  auto* engine =
      app->add_option("--engine", o.engine, "Engine of the backend")->check(engine_name())->type_name(engine_list("|"));
  auto* model = app->add_option("--model", o.checkpoint, "Use the layer sizes of this checkpoint")->type_name("CKPT");
  app->add_option("--layout-version", o.layout_version, "Choose among the layouts of the backend")
      ->type_name("NAME")
      ->needs(backend);
  app->add_option("--tp-size", o.tp_size, "Use the layer sizes on one of N ranks")
      ->check(range(1, 1024))
      ->type_name("N")
      ->capture_default_str();
  add_gate_up(app, o.model);
  backend->needs(engine)->needs(model);
  engine->needs(backend);
  model->needs(backend);
  add_common(app, common);
  app->callback([&] {
    run = [&] {
      o.json = common.json;
      if (!o.engine.empty()) {
        const EngineRequest engine = read_engine(o.engine);
        o.engine = engine.name;
        o.engine_version = engine.version;
      }
      if (!o.checkpoint.empty()) o.checkpoint = checkpoint_path(o.checkpoint);
      layout(o);
      return 0;
    };
  });
}

}  // namespace mxfp4::cli
