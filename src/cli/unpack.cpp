#include "src/convert/unpack.h"

#include <unistd.h>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/cli/commands.h"
#include "src/convert/raw_layer.h"

namespace mxfp4::cli {

void add_unpack(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("unpack", "Restore the original checkpoint");
  static UnpackOptions o;
  static RawLayerOptions raw;
  app->description(
      "Restore the original checkpoint\n\nRestores the original files byte for byte, except those that convert "
      "skipped. With --layer: prints one layer's experts on standard output.");
  app->footer(
      "mxfp4-pack unpack out/ gpt-oss-20b-again/\n"
      "mxfp4-pack unpack out/ --layer model.layers.0.mlp.experts >layer.safetensors");
  app->add_option("OUT", o.out, "Output of convert")->required()->type_name("");
  auto* dest = app->add_option("DEST", o.dest, "Directory to make")->type_name("");
  auto* layer = add(app,
                    {.name = "--layer",
                     .value = "MODULE",
                     .help = "Print the experts of this module, as the engine has them before its conversion",
                     .manual = R"(Print the experts of one layer, such as
.Ql model.layers.3.mlp.experts ,
as a safetensors file with the parameters that the engine has before its conversion.)"},
                    raw.layer);
  layer->excludes(dest);
  add(app,
      {.name = "--set",
       .value = "N",
       .help = "With --layer: print this set of the manifest [default: 0]",
       .manual = R"(With
.Fl -layer :
print this set of the manifest [0].)"},
      raw.set)
      ->needs(layer);
  add(app,
      {.name = "--rank",
       .value = "R",
       .help = "With --layer: print this tensor-parallel rank [default: 0]",
       .manual = R"(With
.Fl -layer :
print this tensor-parallel rank [0].)"},
      raw.rank)
      ->needs(layer);
  app->option_defaults()->group("Resources");
  add_threads(app, o.threads);
  add_device(app, o.device);
  add_common(app, common);
  app->callback([&, dest, layer] {
    if (dest->empty() && layer->empty()) throw CLI::RequiredError("DEST");
    run = [&, layer] {
      o.json = common.json;
      if (layer->empty()) {
        const Json result = unpack(o);
        if (o.json) print_out("{}\n", one_line(result));
        return 0;
      }
      if (o.json || ::isatty(STDOUT_FILENO))
        fail(ErrorKind::usage, "--layer prints a file on standard output: send it into one, without --json");
      raw.out = o.out;
      raw.threads = o.threads;
      raw.device = o.device;
      print_raw_layer(raw);
      return 0;
    };
  });
}

}  // namespace mxfp4::cli
