#include "src/backends/engine.h"
#include "src/backends/gpu.h"
#include "src/cli/checkpoint_path.h"
#include "src/cli/commands.h"
#include "src/cli/convert_options.h"
#include "src/inspect/list_backends.h"

namespace mxfp4::cli {

void add_backends(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("backends", "List engines, backends, GPUs and releases");
  static BackendFilter o;
  app->description(
      "List engines, backends, GPUs and releases\n\nLists each backend with its engine, layout version, GPU, and the "
      "first engine release that was tested with the loader. -v adds releases and requirements.\n"
      "GPUs: " +
      known_architectures());
  app->footer("mxfp4-pack backends --engine vllm --gpu h100\nmxfp4-pack backends --model gpt-oss-20b/");
  app->option_defaults()->group("Filters");
  app->add_option("--engine", o.engine, "List only this engine, or a release such as vllm==0.33.0")
      ->check(engine_name())
      ->type_name(engine_list("|"));
  app->add_option("--gpu", o.gpu, "List only backends that run on this GPU: h100, sm90, gfx950, cpu, ..")
      ->transform(architecture())
      ->type_name("GPU");
  app->add_option("--model", o.checkpoint, "List only backends that can hold the experts of this checkpoint")
      ->type_name("CKPT");
  add_common(app, common);
  app->callback([&] {
    run = [&] {
      o.json = common.json;
      if (!o.engine.empty()) {
        const EngineRequest request = read_engine(o.engine);
        o.engine = request.name;
        o.release = request.version;
      }
      if (!o.checkpoint.empty()) o.checkpoint = checkpoint_path(o.checkpoint);
      list_backends(o);
      return 0;
    };
  });
}

}  // namespace mxfp4::cli
