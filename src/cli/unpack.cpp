#include "src/convert/unpack.h"

#include "src/base/log.h"
#include "src/cli/commands.h"

namespace mxfp4::cli {

void add_unpack(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("unpack", "Restore the original checkpoint");
  static UnpackOptions o;
  app->description(
      "Restore the original checkpoint\n\nRestores the original files byte for byte, except those that convert "
      "skipped.");
  app->footer("mxfp4-pack unpack out/ gpt-oss-20b-again/");
  app->add_option("OUT", o.out, "Output of convert")->required()->type_name("");
  app->add_option("DEST", o.dest, "Directory to make")->required()->type_name("");
  app->option_defaults()->group("Resources");
  add_threads(app, o.threads);
  add_device(app, o.device);
  add_common(app, common, run, [&] {
    o.json = common.json;
    const Json result = unpack(o);
    if (o.json) print_out("{}\n", one_line(result));
    return 0;
  });
}

}  // namespace mxfp4::cli
