#include "src/synth/synth.h"

#include "src/base/elapsed.h"
#include "src/base/log.h"
#include "src/base/progress.h"
#include "src/base/signals.h"
#include "src/cli/commands.h"

namespace mxfp4::cli {

namespace {

void add_seed(CLI::App* app, uint64_t& seed) {
  add(app, {.name = "--seed", .value = "S", .help = "Seed the numbers", .manual = "Seed the numbers [0]."}, seed)
      ->check(range(uint64_t(0), UINT64_MAX))
      ->capture_default_str();
}

void add_sizes(CLI::App* app, SynthSizes& sizes) {
  const auto size = [&](const char* name, std::optional<int64_t>& value, const char* help) {
    add(app, {.name = name, .value = "N", .help = help}, value)->check(range(int64_t(1), int64_t(1) << 32));
  };
  size("--layers", sizes.layers, "Layers; each size defaults to the published one");
  size("--experts", sizes.experts, "Experts of a layer");
  size("--hidden", sizes.hidden, "Hidden size");
  size("--intermediate", sizes.intermediate, "Intermediate size of an expert");
  size("--vocab", sizes.vocab, "Vocabulary");
  add(app, {.name = "--tiny", .help = "Use sizes that give a few hundred kilobytes, unless they are given"},
      sizes.tiny);
}

int run_synth(SynthOptions& o, bool json) {
  std::unique_ptr<Progress> progress;
  int64_t before = 0;
  o.progress = [&](int64_t done, int64_t total) {
    throw_if_interrupted();
    if (!progress) progress = std::make_unique<Progress>("writing", total);
    progress->add(done - before);
    before = done;
  };
  const auto begin = std::chrono::steady_clock::now();
  synth(o);
  const double seconds = seconds_since(begin);
  progress.reset();
  if (json)
    print_out("{}\n", one_line(Json{{"model", o.model}, {"dest", o.dest}, {"bytes", before}}));
  else
    note(fmt::format("{}: {} at random, seed {}, in {} ({})", o.dest, human_bytes(before), o.seed,
                     human_seconds(seconds), human_rate(before, seconds)));
  return 0;
}

}  // namespace

void add_synth(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("synth", "Write a random checkpoint with a published one's structure");
  static SynthOptions o;
  std::string models;
  for (const SynthModel& m : synth_models()) models += fmt::format("{}{}", models.empty() ? "" : ", ", m.name);
  app->description(
      "Write a random checkpoint with a published one's structure\n\n"
      "Writes random numbers with the names, dtypes, shapes, config and shards of a published checkpoint.\nModels: " +
      models);
  app->footer("mxfp4-pack synth gpt-oss-20b gpt-oss-random/ --layers 2");
  app->add_option("MODEL", o.model, "Published model to imitate")->required()->type_name("");
  app->add_option("DEST", o.dest, "Directory to make")->required()->type_name("");
  add_sizes(app, o.sizes);
  add_seed(app, o.seed);
  add_threads(app, o.threads);
  add_common(app, common, run, [&] { return run_synth(o, common.json); });
}

}  // namespace mxfp4::cli
