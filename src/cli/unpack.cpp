#include "src/convert/unpack.h"

#include "src/cli/commands.h"

namespace mxfp4::cli {

void add_unpack(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("unpack", "Take packed experts back to the checkpoint's own tensors");
  static UnpackOptions o;
  app->description(
      "mxfp4-pack unpack gpt-oss-20b-marlin/ gpt-oss-20b-again/\n\nWrites the checkpoint that OUT was made from; every "
      "tensor byte for byte.");
  app->add_option("OUT", o.out, "Output of convert")->required()->type_name("");
  app->add_option("DEST", o.dest, "Directory to make")->required()->type_name("");
  add_threads(app, o.threads);
  add_device(app, o.device);
  add_common(app, common);
  app->callback([&] { run = [&] { return o.json = common.json, unpack(o), 0; }; });
}

}  // namespace mxfp4::cli
