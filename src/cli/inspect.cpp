#include "src/inspect/inspect.h"

#include "src/cli/checkpoint_path.h"
#include "src/cli/commands.h"

namespace mxfp4::cli {

void add_inspect(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("inspect", "List the contents and problems of a checkpoint");
  static InspectOptions o;
  app->description(
      "List the contents and problems of a checkpoint\n\nLists all problems that would stop convert. For an output "
      "it lists each set, the releases that load it, and the command that serves it. Reads only headers.");
  app->footer("mxfp4-pack inspect gpt-oss-20b/\nmxfp4-pack inspect out/");
  app->add_option("CKPT", o.checkpoint, "Checkpoint directory, or an output of convert")->required()->type_name("");
  add_gate_up(app, o.model);
  add_follow_links(app, o.links);
  add_common(app, common, run, [&] {
    o.json = common.json;
    o.checkpoint = checkpoint_path(o.checkpoint);
    return inspect(o) ? 0 : 2;
  });
}

}  // namespace mxfp4::cli
