#include "src/backends/engine.h"
#include "src/backends/gpu.h"
#include "src/cli/checkpoint_path.h"
#include "src/cli/commands.h"
#include "src/cli/convert_options.h"
#include "src/inspect/list_backends.h"
#include "src/packed/manifest.h"

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
  add(app,
      {.name = "--engine",
       .value = engine_list("|"),
       .help = "List only this engine, or a release such as vllm==0.33.0",
       .manual = R"(List only this engine, or a release such as
.Cm vllm==0.33.0 .)"},
      o.engine)
      ->check(engine_name());
  add(app,
      {.name = "--gpu",
       .value = "GPU",
       .help = "List only backends that run on this GPU: h100, sm90, gfx950, cpu, ..",
       .manual = "List only backends that run on this GPU."},
      o.gpu)
      ->transform(architecture());
  add(app,
      {.name = "--model", .value = "CKPT", .help = "List only backends that can hold the experts of this checkpoint"},
      o.checkpoint);
  add_common(app, common, run, [&] {
    o.json = common.json;
    if (!o.engine.empty()) settle_engine(o.engine, o.release);
    if (!o.checkpoint.empty()) o.checkpoint = checkpoint_path(o.checkpoint);
    if (!o.checkpoint.empty() && has_manifest(o.checkpoint))
      fail(ErrorKind::usage, "{}: an output of mxfp4-pack; mxfp4-pack inspect lists the engines that read it",
           o.checkpoint);
    list_backends(o);
    return 0;
  });
}

}  // namespace mxfp4::cli
