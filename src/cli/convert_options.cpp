#include "src/cli/convert_options.h"

#include "src/backends/backend.h"
#include "src/backends/gpu.h"
#include "src/base/log.h"
#include "src/cli/checkpoint_path.h"
#include "src/cli/published_option.h"

namespace mxfp4::cli {

namespace {

/// The layout version of triton-hopper for kernels of 4 warps.
std::string four_warps(const ConvertOptions& o) {
  if (o.backend != "triton-hopper") fail(ErrorKind::usage, "--num-warps is for backend triton-hopper only");
  return std::string(find_backend(o.backend, o.engine, o.layout_version, nullptr, o.engine_version).layout_version) +
         "-w4";
}

void add_engine(CLI::App* app, ConvertOptions& o, NeededOptions& needed) {
  app->option_defaults()->group("What to write");
  needed.backend =
      app->add_option("--backend", o.backend,
                      "Kernel that will read OUT: auto, what the engine would choose if a loader reads it; "
                      "a name that 'mxfp4-pack backends' lists, or the engine's own");
  needed.backend->required()->type_name("NAME")->envname("MXFP4_PACK_BACKEND");
  needed.engine =
      app->add_option("--engine", o.engine, "Engine that will load OUT; there is no default, since bytes differ");
  needed.engine->required()->check(engine_name())->type_name(engine_list("|"))->envname("MXFP4_PACK_ENGINE");
  const auto take_layout = [&o, needed](const std::string& path) {
    o.layout = path;
    for (CLI::Option* other : {needed.backend, needed.engine}) {
      other->required(false);
      other->envname("");  // the environment's is for conversions without a file
    }
  };
  app->add_option_function<std::string>("--layout", take_layout,
                                        "A layout file, in place of backend and engine; 'mxfp4-pack layout' tells more")
      ->type_name("FILE")
      ->trigger_on_parse()
      ->excludes(needed.backend)
      ->excludes(needed.engine);
  app->add_option("--engine-version", o.engine_version,
                  "Its release, also as --engine vllm==0.33.0; installed: that of python3. Default: the newest known")
      ->type_name("VERSION|installed");
  const auto keep_memory = [&o](const std::string& name) {
    o.gpu_bytes = memory_of(name);
    return std::string();
  };
  app->add_option("--gpu", o.gpu,
                  "Where it will run: h100, sm75 to sm121, gfx942, cpu, ..; default with --backend auto: the GPU here")
      ->transform(architecture())
      ->transform(CLI::Validator(keep_memory, ""))  // runs before the other
      ->type_name("GPU");
  app->add_option("--tp-size", o.tp_size,
                  "Tensor-parallel ranks of the MoE layers: a set of files for each; OUT is for that size only")
      ->check(range(1, 1024))
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--rank", o.rank, "Write this rank only")->check(range(0, 1023))->type_name("R");
  app->add_flag("--no-loader", o.no_loader, "Write also what no loader of the release reads, for a loader of your own");
}

void add_choices(CLI::App* app, Conversion& c) {
  ConvertOptions& o = c.options;
  app->option_defaults()->group("Finer choices");
  app->add_option(
         "--layout-version", o.layout_version,
         "Which form of the layout; default: the first that 'mxfp4-pack backends -v' lists for the engine's release")
      ->type_name("NAME");
  app->add_option("--phase", o.phase, "With --backend auto on sm90: the fastest as measured, not the engine's choice")
      ->check(one_of({"prefill", "decode"}))
      ->type_name("prefill|decode");
  app->add_flag("--lossy", o.lossy, "With --backend auto: take the engine's choice also where it changes values");
  app->add_option("--num-warps", c.num_warps, "triton-hopper: warps of the engine's kernel")
      ->check(one_of({"4", "8"}))
      ->type_name("4|8")
      ->capture_default_str();
  app->add_option("--format", o.format,
                  "packed: experts, for an engine with a loader. sharded-state: GPT-OSS whole, for SGLang without one")
      ->check(one_of({"packed", "sharded-state"}))
      ->type_name("packed|sharded-state")
      ->capture_default_str();
  app->add_flag("--allow-nan-scales", o.allow_nan_scales, "Accept scale bytes 0xFF (NaN)");
  app->add_flag(
      "--allow-incomplete", o.allow_incomplete,
      "Convert a checkpoint that lacks tensors, or holds zeros, NaN or infinity in place of weights; OUT says so");
  auto* published = add_published(app, o.published, "Compare the checkpoint's files with published hashes");
  app->add_flag("--no-published", o.no_published, "Compare no hashes, not even those that Hugging Face's tools keep")
      ->excludes(published);
  add_gate_up(app, o.model);
  add_follow_links(app, o.links, "CKPT");
}

void add_output(CLI::App* app, ConvertOptions& o) {
  app->option_defaults()->group("What becomes of OUT");
  app->add_flag("--dry-run", o.dry_run,
                "Print the plan: tensors, padding, memory, disk; write nothing. With -v every tensor");
  auto* force =
      app->add_flag("--force", o.force,
                    "Replace what mxfp4-pack made: an OUT, or what an interrupted run of another conversion left");
  auto* add =
      app->add_flag("--add", o.add, "Add a set (another backend, engine or tp) to an OUT of the same checkpoint");
  add->excludes(force);
  static const std::map<std::string, Link> links = {
      {"none", Link::none}, {"auto", Link::automatic}, {"hard", Link::hard}, {"reflink", Link::reflink}};
  app->add_option("--link", o.link, "Keep shards without experts whole, under their names: linked, or copied (none)")
      ->transform(by_name(links))
      ->excludes(add)
      ->type_name("auto|hard|reflink|none");
  auto* sync = app->add_flag_callback(
      "--sync", [&o] { o.sync = Sync::yes; }, "End when all of OUT is on disk; the default");
  app->add_flag_callback(
         "--no-sync", [&o] { o.sync = Sync::no; }, "Do not wait for the disk in the end; for pipelines that sync later")
      ->excludes(sync);
  app->add_flag("--sha256", o.sha256, "Write SHA256SUMS, which sha256sum -c reads and verify checks");
}

}  // namespace

CLI::Validator architecture() {
  const auto find = [](std::string& text) {
    const std::string name = architecture_of(text);
    if (name.empty()) return fmt::format("{} is not one of {}", text, known_architectures());
    text = name;
    return std::string();
  };
  return CLI::Validator(find, "");
}

CLI::Validator engine_name() {
  const auto find = [](const std::string& text) {
    try {
      find_engine(text.substr(0, text.find("==")));
    } catch (const Error& e) {
      return e.lines.front();
    }
    return std::string();
  };
  return CLI::Validator(find, "");
}

ConvertOptions Conversion::settled() const {
  ConvertOptions o = options;
  if (!o.layout.empty()) {
    if (!o.layout_version.empty() || !o.engine_version.empty() || !o.gpu.empty() || !o.phase.empty() || o.lossy ||
        num_warps == 4)
      fail(
          ErrorKind::usage,
          "--layout: a file is one layout; --layout-version, --engine-version, --gpu, --phase, --lossy and --num-warps "
          "choose among backends");
    o.checkpoint = checkpoint_path(o.checkpoint);
    return o;
  }
  settle_names(o);
  if (num_warps == 4) o.layout_version = four_warps(o);
  if (o.backend != "auto" && (!o.phase.empty() || o.lossy))
    note(fmt::format("{}: of --backend auto; with {} it changes nothing", o.lossy ? "--lossy" : "--phase", o.backend));
  o.checkpoint = checkpoint_path(o.checkpoint);
  return o;
}

NeededOptions add_conversion(CLI::App* app, Conversion& c) {
  NeededOptions needed;
  needed.checkpoint = app->add_option("CKPT", c.options.checkpoint,
                                      "Checkpoint directory, only read; or its name in the Hugging Face cache");
  needed.checkpoint->required()->type_name("");
  needed.out = app->add_option("OUT", c.options.out, "Directory to make; appears whole or not at all");
  needed.out->required()->type_name("");
  add_engine(app, c.options, needed);
  add_output(app, c.options);
  add_choices(app, c);
  app->option_defaults()->group("Resources");
  add_threads(app, c.options.threads);
  add_device(app, c.options.device);
  add_page_cache(app, c.options.page_cache, "Leave OUT in the page cache, for an engine that starts next");
  return needed;
}

}  // namespace mxfp4::cli
