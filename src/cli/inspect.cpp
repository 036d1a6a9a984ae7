#include "src/inspect/inspect.h"

#include "src/cli/commands.h"

namespace mxfp4::cli {

void add_inspect(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("inspect", "Say what a checkpoint holds and whether it can be converted");
  static InspectOptions o;
  app->description(
      "mxfp4-pack inspect gpt-oss-20b/\n\nSays what a checkpoint holds, what would be converted and every problem. "
      "Reads headers only.");
  app->add_option("CKPT", o.checkpoint, "Checkpoint directory")->required()->type_name("");
  add_gate_up(app, o.model);
  add_common(app, common);
  app->callback([&] { run = [&] { return o.json = common.json, inspect(o), 0; }; });
}

}  // namespace mxfp4::cli
