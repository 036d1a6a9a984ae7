#include "src/inspect/diff.h"

#include "src/cli/commands.h"

namespace mxfp4::cli {

void add_diff(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("diff", "Compare two outputs, or an output and an engine's live state");
  static DiffOptions o;
  app->description(
      "Compare two outputs, or an output and an engine's live state\n\nPrints for each tensor how many experts and "
      "bytes differ, the first difference, and the likely cause. Exit code 0: equal. 1: different.");
  app->footer("mxfp4-pack diff out/ other-out/\nmxfp4-pack diff out/ state.safetensors");
  app->add_option("A", o.a, "Output of convert")->required()->type_name("");
  app->add_option("B", o.b, "Another output, or a live state: a safetensors file or a directory of such files")
      ->required()
      ->type_name("");
  add(app,
      {.name = "--rank",
       .value = "R",
       .help = "Compare only this tensor-parallel rank; default: all, for a live state 0",
       .manual = "Compare only this tensor-parallel rank [all; for a live state 0]."},
      o.rank)
      ->check(range(0, 1023));
  add_common(app, common, run, [&] {
    o.json = common.json;
    return diff(o) ? 0 : 1;
  });
}

}  // namespace mxfp4::cli
