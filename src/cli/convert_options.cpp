#include "src/cli/convert_options.h"

#include "src/backends/backend.h"
#include "src/backends/gpu.h"
#include "src/base/log.h"
#include "src/cli/checkpoint_path.h"
#include "src/cli/published_option.h"

namespace mxfp4::cli {

namespace {

void add_engine(CLI::App* app, ConvertOptions& o, NeededOptions& needed) {
  app->option_defaults()->group("What to write");
  needed.backend = app->add_option("--backend", o.backend,
                                   "Pack for this backend: auto (the engine's choice, if a loader reads it), "
                                   "a name that 'mxfp4-pack backends' lists, or the engine's own name");
  needed.backend->required()->type_name("NAME")->envname("MXFP4_PACK_BACKEND");
  needed.engine =
      app->add_option("--engine", o.engine, "Pack for this engine, or for a release: vllm==0.33.0, or vllm==installed");
  needed.engine->required()->check(engine_name())->type_name(engine_list("|"))->envname("MXFP4_PACK_ENGINE");
  const auto take_layout = [&o, needed](const std::string& path) {
    o.layout = path;
    for (CLI::Option* other : {needed.backend, needed.engine}) {
      other->required(false);
      other->envname("");  // the environment's value is for conversions without a layout file
    }
  };
  app->add_option_function<std::string>("--layout", take_layout,
                                        "Pack as a layout file describes, instead of --backend and --engine")
      ->type_name("FILE")
      ->trigger_on_parse()
      ->excludes(needed.backend)
      ->excludes(needed.engine);
  const auto keep_memory = [&o](const std::string& name) {
    o.gpu_bytes = memory_of(name);
    return std::string();
  };
  app->add_option("--gpu", o.gpu,
                  "Refuse a backend that does not run on this GPU: h100, sm75 to sm121, gfx942, cpu, ..; default with "
                  "--backend auto: this machine's")
      ->transform(architecture())
      ->transform(CLI::Validator(keep_memory, ""))  // CLI11 runs it before architecture()
      ->type_name("GPU");
  app->add_option("--tp-size", o.tp_size,
                  "Pack for N tensor-parallel ranks of the MoE layers; the set serves this size only")
      ->check(range(1, 1024))
      ->type_name("N")
      ->capture_default_str();
  app->add_flag("--no-loader", o.no_loader, "Accept a backend that no loader reads for this model and release");
}

void add_choices(CLI::App* app, Conversion& c) {
  ConvertOptions& o = c.options;
  app->option_defaults()->group("Finer choices");
  app->add_option("--layout-version", o.layout_version,
                  "Choose among the layouts of a backend; default: the first that 'mxfp4-pack backends -v' lists for "
                  "the release")
      ->type_name("NAME");
  app->add_option("--format", o.format, "sharded-state: GPT-OSS for SGLang without a loader")
      ->check(one_of({"packed", "sharded-state"}))
      ->type_name("packed|sharded-state")
      ->capture_default_str();
  app->add_flag(
      "--allow-incomplete", o.allow_incomplete,
      "Accept a checkpoint that lacks tensors or has broken small files, or holds zeros, NaN or infinity in place of "
      "weights; OUT records this");
  auto* published = add_published(app, o.published, "Compare the checkpoint's files with published hashes");
  app->add_flag("--no-published", o.no_published, "Compare no hashes, not even those that Hugging Face's tools keep")
      ->excludes(published);
  add_gate_up(app, o.model);
  add_follow_links(app, o.links, "CKPT");
}

void add_output(CLI::App* app, ConvertOptions& o) {
  app->option_defaults()->group("What becomes of OUT");
  app->add_flag("--dry-run", o.dry_run,
                "Print the plan (tensors, padding, memory, disk) and write nothing; -v lists each tensor");
  auto* force =
      app->add_flag("--force", o.force,
                    "Replace an OUT that mxfp4-pack made; discard parts and an interrupted run of another conversion");
  auto* add = app->add_flag("--add", o.add, "Add this set to an OUT that was made from the same checkpoint");
  add->excludes(force);
  app->add_flag("--link", o.link,
                "Keep shards without experts under their names: as reflinks, else as hard links, else as copies")
      ->excludes(add);
  app->add_flag_callback(
      "--no-sync", [&o] { o.sync = Sync::no; }, "Exit without waiting for the disk, if the pipeline syncs later");
  app->add_flag("--sha256", o.sha256, "Write SHA256SUMS for sha256sum -c, which verify checks too");
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
    if (!o.layout_version.empty() || !o.gpu.empty())
      fail(ErrorKind::usage, "--layout: a file is one layout; --layout-version and --gpu choose among backends");
    o.checkpoint = checkpoint_path(o.checkpoint);
    return o;
  }
  settle_names(o);
  o.checkpoint = checkpoint_path(o.checkpoint);
  return o;
}

NeededOptions add_conversion(CLI::App* app, Conversion& c) {
  NeededOptions needed;
  needed.checkpoint = app->add_option("CKPT", c.options.checkpoint,
                                      "Checkpoint directory, or its name in the Hugging Face cache; only read");
  needed.checkpoint->required()->type_name("");
  needed.out = app->add_option("OUT", c.options.out, "Directory to make; appears complete or not at all");
  needed.out->required()->type_name("");
  add_engine(app, c.options, needed);
  add_output(app, c.options);
  add_choices(app, c);
  app->option_defaults()->group("Resources");
  add_threads(app, c.options.threads);
  add_device(app, c.options.device);
  add_page_cache(app, c.options.page_cache,
                 "Leave the files of OUT in the page cache, for a faster start of the engine");
  return needed;
}

}  // namespace mxfp4::cli
