#include "src/convert/merge.h"

#include "src/base/log.h"
#include "src/cli/commands.h"

namespace mxfp4::cli {

namespace {

int merge_parts(const MergeOptions& o) {
  const Json result = merge(o);
  const bool missing = result.contains("missing");
  if (o.json) print_out("{}\n", one_line(result));
  if (!missing) return 0;
  const std::string array = result["array"];
  if (!o.json) print_out("{}\n", array);
  complain(fmt::format("{}: {} of {} parts are missing; write these: {}", o.out, result["missing"].size(),
                       int(result["parts"]), array));
  return 1;
}

}  // namespace

void add_merge(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("merge", "Join the parts that several nodes wrote");
  static MergeOptions o;
  app->description(
      "Join the parts that several nodes wrote\n\n"
      "Makes OUT from the parts that convert wrote. Exit code 1: parts are missing; their numbers are printed in "
      "Slurm's notation.");
  app->footer("mxfp4-pack merge out/");
  app->add_option("OUT", o.out, "Output whose parts convert wrote")->required()->type_name("");
  add(app,
      {.name = "--verify",
       .help = "Read all bytes again, and rewrite any that differ",
       .manual = R"(Read all bytes again, and rewrite any that differ.
If
.Ar OUT
has no parts, compare it with its checksums.)"},
      o.verify);
  app->option_defaults()->group("Resources");
  add_threads(app, o.threads);
  add_device(app, o.device);
  add_common(app, common, run, [&] {
    o.json = common.json;
    return merge_parts(o);
  });
}

}  // namespace mxfp4::cli
