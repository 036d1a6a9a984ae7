#include "src/base/log.h"
#include "src/cli/commands.h"
#include "src/cli/convert_options.h"
#include "src/cli/part_option.h"

namespace mxfp4::cli {

void add_convert(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("convert", "Pack a checkpoint's experts for an engine");
  static ConvertOptions o;
  app->description(
      "Pack a checkpoint's experts for an engine\n\n"
      "Writes OUT: the checkpoint with its experts packed for one backend of one engine. The same command continues an "
      "interrupted run, and changes nothing if OUT is complete.");
  app->footer(
      "mxfp4-pack convert gpt-oss-20b/ out/ --backend auto --engine vllm --gpu h100\n"
      "mxfp4-pack convert gpt-oss-120b/ out/ --backend marlin --engine vllm --tp-size 2 --dry-run\n"
      "mxfp4-pack convert gpt-oss-20b/ out/ --backend marlin --engine vllm --part 0/2    # 1/2 elsewhere, then merge");
  add_conversion(app, o);
  static PartOptions part;
  add_part(app, part, {"--dry-run", "--published"});
  add_common(app, common, run, [&] {
    o.json = common.json;
    o.part = part.number();
    const ConvertOptions whole = settled(o);
    Json result = convert(whole);
    if (part.merge)
      result["merged"] =
          merge_if_whole({.out = whole.out, .threads = whole.threads, .device = whole.device, .json = common.json});
    if (common.json && !o.dry_run) print_out("{}\n", one_line(result));
    return 0;
  });
}

}  // namespace mxfp4::cli
