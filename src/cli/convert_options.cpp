#include "src/cli/convert_options.h"

#include "src/backends/backend.h"
#include "src/backends/gpu.h"
#include "src/base/log.h"
#include "src/cli/checkpoint_path.h"

namespace mxfp4::cli {

namespace {

CLI::Option* add_backend(CLI::App* app, ConvertOptions& o) {
  return add(app,
             {.name = "--backend",
              .value = "NAME",
              .help = "Pack for this backend: auto (the engine's choice, if a loader reads it), a name that "
                      "'mxfp4-pack backends' lists, or the engine's own name",
              .manual = R"(Pack for this backend;
.Cm backends
lists the names.
The engine's own name is accepted; if several backends have it,
.Fl -gpu
and then the engine's preference decide.
.Pp
.Cm auto
takes the backend that the engine chooses for the model on
.Fl -gpu .
If that one cannot be written,
.Cm auto
says so and takes the next in the engine's order; if no loader reads it, the first on that GPU with a loader.
It never takes a lossy backend.
.Pp
.Cm flashinfer-humming
and
.Cm humming-w4a8
are lossy: they round codes whose scale is far below their expert's largest.
.Cm convert
prints and records the changes.
A lossy set cannot be unpacked.)",
              .variable = "MXFP4_PACK_BACKEND"},
             o.backend)
      ->required();
}

CLI::Option* add_engine(CLI::App* app, ConvertOptions& o) {
  return add(app,
             {.name = "--engine",
              .value = engine_list("|"),
              .help = "Pack for this engine, or a release: vllm==0.33.0, or vllm==installed",
              .manual = R"(Pack for this engine, in its newest known release.
.Cm vllm==0.33.0
is another release, and
.Cm vllm==installed
the one in the
.Cm python3
of
.Ev VIRTUAL_ENV ,
or else of
.Ev PATH .)",
              .variable = "MXFP4_PACK_ENGINE"},
             o.engine)
      ->required()
      ->check(engine_name());
}

/// needed: --backend and --engine.
void add_layout_file(CLI::App* app, ConvertOptions& o, const std::array<CLI::Option*, 2>& needed) {
  const auto take = [&o, needed](const std::string& path) {
    o.layout = path;
    for (CLI::Option* other : needed) {
      other->required(false);
      other->envname("");  // the environment's value is for conversions without a layout file
    }
  };
  add_call<std::string>(app,
                        {.name = "--layout",
                         .value = "FILE",
                         .help = "Pack as a layout file describes, instead of --backend and --engine",
                         .manual = R"(Pack as a layout file describes, instead of
.Fl -backend
and
.Fl -engine ;
see
.Xr mxfp4-pack-layout 5 .)"},
                        take)
      ->trigger_on_parse()
      ->excludes(needed[0])
      ->excludes(needed[1]);
}

void add_gpu(CLI::App* app, ConvertOptions& o) {
  const auto keep_memory = [&o](const std::string& name) {
    o.gpu_bytes = memory_of(name);
    return std::string();
  };
  add(app,
      {.name = "--gpu",
       .value = "GPU",
       .help = "Refuse a backend that does not run on this GPU: h100, sm75 to sm121, gfx942, cpu, ..; default with "
               "--backend auto: this machine's",
       .manual = R"(Refuse a backend that does not run on this GPU.
[With
.Fl -backend Cm auto :
this machine's GPU.]
.Ar GPU
is an architecture or a name of its line:
.Bd -unfilled -offset indent -compact
.Cm sm75 t4
.Cm sm80 a30 a100
.Cm sm86 a10 a40 a6000 rtx3090
.Cm sm87 orin
.Cm sm89 l4 l40 l40s rtx4090
.Cm sm90 h20 h100 h200 gh200
.Cm sm100 b100 b200 gb200
.Cm sm103 b300 gb300
.Cm sm107 rubin
.Cm sm120 rtx5090
.Cm sm121 gb10
.Cm gfx942 mi300x mi300a mi325x
.Cm gfx950 mi350x mi355x
.Cm cpu
.Ed)"},
      o.gpu)
      ->transform(architecture())
      ->transform(CLI::Validator(keep_memory, ""));  // CLI11 runs it before architecture()
}

void add_target(CLI::App* app, ConvertOptions& o) {
  app->option_defaults()->group("What to write");
  auto* backend = add_backend(app, o);
  add_layout_file(app, o, {backend, add_engine(app, o)});
  add_gpu(app, o);
  add(app,
      {.name = "--tp-size",
       .value = "N",
       .help = "Pack for N tensor-parallel ranks of the MoE layers; the set serves this size only",
       .manual = R"(Pack for
.Ar N
tensor-parallel ranks of the MoE layers [1].
The set serves this size only.)"},
      o.tp_size)
      ->check(range(1, 1024))
      ->capture_default_str();
  add(app,
      {.name = "--no-loader",
       .help = "Accept a backend that no loader reads for this model and release",
       .manual = R"(Accept a backend that no loader
.Pq Xr mxfp4-pack-loaders 7
reads for this model and release.)"},
      o.no_loader);
}

void add_choices(CLI::App* app, ConvertOptions& o) {
  app->option_defaults()->group("Finer choices");
  add(app,
      {.name = "--layout-version",
       .value = "NAME",
       .help = "Choose among the layouts of a backend; default: the first that 'mxfp4-pack backends -v' lists for the "
               "release",
       .manual = R"(Choose among the layouts of a backend [the first that
.Cm backends
.Fl v
lists for the engine's release].)"},
      o.layout_version);
  add(app,
      {.name = "--allow-incomplete",
       .help =
           "Accept missing tensors, broken small files, and zeros, NaN or infinity in place of weights; OUT records "
           "this, also for --add",
       .manual =
           R"(Accept missing tensors, broken small files, and weights of zeros, NaN (scales: 0xFF) or infinity;
.Ar OUT
records this, also for
.Fl -add .)"},
      o.model.allow_incomplete);
  auto* published = add_published(app, o.published);
  add(app,
      {.name = "--no-published",
       .help = "Compare no hashes, not even those that Hugging Face's tools keep",
       .manual = "Compare no hashes."},
      o.no_published)
      ->excludes(published);
  add_gate_up(app, o.model);
  add_follow_links(app, o.links);
}

/// --force, --add and --link: how OUT uses files that exist.
void add_replacement(CLI::App* app, ConvertOptions& o) {
  auto* force =
      add(app,
          {.name = "--force",
           .help = "Replace an OUT that mxfp4-pack made; discard parts and an interrupted run of another conversion",
           .manual = R"(Replace
.Ar OUT ,
which stays until the new one is complete: the disk must hold both.
Discard interrupted runs of other conversions.)"},
          o.force);
  auto* adds = add(app,
                   {.name = "--add",
                    .help = "Add this set to an OUT that was made from the same checkpoint",
                    .manual = R"(Add this set to an
.Ar OUT
that was made from the same checkpoint.
.Ar CKPT
may be that
.Ar OUT .
All of
.Ar CKPT
is read and compared with the manifest.
The new
.Ar OUT
has hard links to the old files, or copies if the file system has none.
Their contents are not checked.)"},
                   o.add)
                   ->excludes(force);
  add(app,
      {.name = "--link",
       .help = "Keep shards without experts under their names: as reflinks, else as hard links, else as copies",
       .manual = R"(Keep shards without experts under their names [copy their tensors into new files].
They are reflinks, which share blocks, if the file system has them, else hard links, else copies.
A hard link is the same file: a later change to the checkpoint's shard changes
.Ar OUT .)"},
      o.link)
      ->excludes(adds);
}

void add_output(CLI::App* app, ConvertOptions& o) {
  app->option_defaults()->group("What becomes of OUT");
  add(app,
      {.name = "--dry-run",
       .help = "Print the plan (tensors, padding, memory, disk) and write nothing; -v lists each tensor",
       .manual = R"(Print the plan (tensors, padding, memory, disk) and write nothing.
Fail if the disk lacks space for all of it, also if an interrupted run needs less.
An existing
.Ar OUT
is checked only with
.Fl -add .
.Fl v
lists each tensor.)"},
      o.dry_run);
  add_replacement(app, o);
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

ConvertOptions settled(ConvertOptions o) {
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

void add_conversion(CLI::App* app, ConvertOptions& o) {
  app->add_option(
         "CKPT", o.checkpoint,
         "Checkpoint directory, its name in the Hugging Face cache, or its address (hf://, https:// or s3://); "
         "only read")
      ->required()
      ->type_name("");
  app->add_option("OUT", o.out, "Directory to make; appears complete or not at all")->required()->type_name("");
  add_target(app, o);
  add_output(app, o);
  add_choices(app, o);
  app->option_defaults()->group("Resources");
  add_threads(app, o.threads);
  add_device(app, o.device);
  add_page_cache(app, o.page_cache);
}

}  // namespace mxfp4::cli
