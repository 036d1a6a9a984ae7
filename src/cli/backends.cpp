#include "src/cli/commands.h"
#include "src/inspect/inspect.h"

namespace mxfp4::cli {

void add_backends(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("backends", "List what can be written");
  app->description(
      "mxfp4-pack backends\n\nLists engine, backend, layout version, GPU and the versions that each fits.");
  add_common(app, common);
  app->callback([&] { run = [&] { return list_backends(common.json), 0; }; });
}

}  // namespace mxfp4::cli
