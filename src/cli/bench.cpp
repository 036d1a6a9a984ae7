#include "src/bench/bench.h"

#include "src/backends/alias.h"
#include "src/cli/commands.h"
#include "src/cli/convert_options.h"

namespace mxfp4::cli {

void add_bench(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("bench", "Measure how fast this machine hashes and packs");
  static MachineBenchOptions o;
  app->description(
      "Measure how fast this machine hashes and packs\n\nMeasures in memory and writes nothing. Takes a few seconds; "
      "with -v, which measures every layout, a minute.");
  app->footer("mxfp4-pack bench\nmxfp4-pack bench --backend triton-hopper -v");
  add(app,
      {.name = "--backend",
       .value = "NAME",
       .help = "Pack for this backend",
       .manual = "Pack for this backend [marlin].",
       .variable = "MXFP4_PACK_BACKEND"},
      o.backend)
      ->capture_default_str();
  add(app,
      {.name = "--engine",
       .value = engine_list("|"),
       .help = "Engine of the backend",
       .manual = "Pack for this engine [vllm].",
       .variable = "MXFP4_PACK_ENGINE"},
      o.engine)
      ->check(engine_name())
      ->capture_default_str();
  add(app,
      {.name = "--repeats", .value = "N", .help = "Print the median of N measurements", .manual = R"(Print the median of
.Ar N
measurements [3].)"},
      o.repeats)
      ->check(range(1, 1000))
      ->capture_default_str();
  add_threads(app, o.threads);
  add_common(app, common);
  app->callback([&] {
    run = [&] {
      o.json = common.json;
      const EngineRequest engine = read_engine(o.engine);
      o.engine = engine.name;
      o.engine_version = engine.version;
      o.backend = backend_called(o.backend, o.engine, "");
      bench(o);
      return 0;
    };
  });
}

}  // namespace mxfp4::cli
