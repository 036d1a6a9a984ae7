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
  app->add_option("--backend", o.backend, "Pack for this backend")
      ->type_name("NAME")
      ->envname("MXFP4_PACK_BACKEND")
      ->capture_default_str();
  app->add_option("--engine", o.engine, "Engine of the backend")
      ->check(engine_name())
      ->type_name(engine_list("|"))
      ->envname("MXFP4_PACK_ENGINE")
      ->capture_default_str();
  app->add_option("--repeats", o.repeats, "Print the median of N measurements")
      ->check(range(1, 1000))
      ->type_name("N")
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
