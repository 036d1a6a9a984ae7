#include "src/inspect/diff.h"

#include "src/cli/commands.h"

namespace mxfp4::cli {

void add_diff(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("diff", "Say where two outputs differ, or an output and an engine's live state");
  static DiffOptions o;
  app->description(
      "Say where two outputs differ, or an output and an engine's live state\n\nSays of each tensor which expert, row "
      "and column differ first, how many do, and the likely cause. Exit code 0: equal. 1: different.");
  app->footer("mxfp4-pack diff out/ other-out/\nmxfp4-pack diff out/ state.safetensors");
  app->add_option("A", o.a, "Output of convert")->required()->type_name("");
  app->add_option("B", o.b, "Another one, or safetensors: a file or a directory")->required()->type_name("");
  app->add_option("--rank", o.rank, "Compare this tensor-parallel rank only; for a dump: its rank, default 0")
      ->check(range(0, 1023))
      ->type_name("R");
  add_common(app, common);
  app->callback([&] {
    run = [&] {
      o.json = common.json;
      return diff(o) ? 0 : 1;
    };
  });
}

}  // namespace mxfp4::cli
