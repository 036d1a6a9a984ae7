#include "src/bench/bench.h"

#include "src/backends/alias.h"
#include "src/backends/gpu.h"
#include "src/cli/checkpoint_path.h"
#include "src/cli/commands.h"
#include "src/cli/convert_options.h"

namespace mxfp4::cli {

void add_bench(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("bench", "Measure what this machine can do");
  static MachineBenchOptions o;
  app->description(
      "Measure what this machine can do\n\nSays how long converting a checkpoint takes here, from what it measures of "
      "disk, hashing and packing. Takes a few seconds; with -v, which measures every layout, a minute.");
  app->footer(
      "mxfp4-pack bench --dir /models --model gpt-oss-120b\n"
      "mxfp4-pack bench --checkpoint gpt-oss-20b/ --backend auto --gpu h100");
  app->add_option("--dir", o.dir, "Folder on the file system to measure; files of two GB are written there and removed")
      ->type_name("DIR")
      ->capture_default_str();
  auto* model = app->add_option("--model", o.model, "Model to predict; those of 'mxfp4-pack synth --help'");
  model->type_name("NAME")->capture_default_str();
  app->add_option("--checkpoint", o.checkpoint, "Checkpoint or OUT to predict, instead of a model")
      ->type_name("CKPT")
      ->excludes(model);
  app->add_option("--backend", o.backend, "What it is converted to, as for convert; auto needs --checkpoint")
      ->type_name("NAME")
      ->envname("MXFP4_PACK_BACKEND")
      ->capture_default_str();
  app->add_option("--engine", o.engine, "Engine that will load it")
      ->check(engine_name())
      ->type_name(engine_list("|"))
      ->envname("MXFP4_PACK_ENGINE")
      ->capture_default_str();
  app->add_option("--gpu", o.gpu, "Where it will run; default with --backend auto: the GPU here")
      ->transform(architecture())
      ->type_name("GPU");
  app->add_option("--repeats", o.repeats, "Measurements of each figure; the median is printed")
      ->check(range(1, 1000))
      ->type_name("N")
      ->capture_default_str();
  add_threads(app, o.threads);
  add_common(app, common);
  app->callback([&] {
    run = [&] {
      o.json = common.json;
      const EngineRequest engine = read_engine(o.engine, "");
      o.engine = engine.name;
      o.engine_version = engine.version;
      o.backend = backend_called(o.backend, o.engine, o.gpu);
      if (!o.checkpoint.empty()) o.checkpoint = checkpoint_path(o.checkpoint);
      bench(o);
      return 0;
    };
  });
}

}  // namespace mxfp4::cli
