// The command line: options to one function per subcommand. The only catch and the only exit code are here.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

#include "src/backends/select.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/bench/bench.h"
#include "src/convert/batch.h"
#include "src/convert/convert.h"
#include "src/convert/unpack.h"
#include "src/inspect/diff.h"
#include "src/inspect/inspect.h"
#include "src/synth/synth.h"
#include "src/verify/verify.h"

using namespace mxfp4;

namespace {

/// What all subcommands share.
struct Common {
  bool json = false, quiet = false, verbose = false;
};

/// Set by the subcommand that was asked for; returns the exit code.
using Run = std::function<int()>;

/// Validators that say nothing in the help: the option's type names the values already.
CLI::Validator one_of(std::vector<std::string> values) { return CLI::IsMember(std::move(values)).description(""); }
CLI::Validator architecture() {
  const auto find = [](std::string& text) {
    const std::string name = architecture_of(text);
    if (name.empty()) return fmt::format("{} is none of {}", text, known_architectures());
    text = name;
    return std::string();
  };
  return CLI::Validator(find, "");
}
/// Digits alone: 1e3 and 1.7 are no layers.
CLI::Validator layer_number() {
  const auto check = [](std::string& text) {
    const bool digits = text.size() <= 9 && !text.empty() && text.find_first_not_of("0123456789") == text.npos;
    return digits || text == "all" ? std::string() : fmt::format("{} is no number of a layer, nor all", text);
  };
  return CLI::Validator(check, "");
}
template <class T>
CLI::Validator by_name(const std::map<std::string, T>& values) {
  const auto find = [values](std::string& text) {
    const auto it = values.find(text);
    std::vector<std::string> names;
    for (const auto& [name, value] : values) names.push_back(name);
    if (it == values.end()) return fmt::format("{} not in {{{}}}", text, fmt::join(names, ","));
    text = std::to_string(int(it->second));
    return std::string();
  };
  return CLI::Validator(find, "");
}

void add_common(CLI::App* app, Common& common) {
  app->add_flag("--json", common.json, "Print one JSON object on stdout, errors too");
  auto* quiet = app->add_flag("-q,--quiet", common.quiet, "Say nothing unless something is wrong");
  app->add_flag("-v,--verbose", common.verbose, "Say more")->excludes(quiet);
}

void add_gate_up(CLI::App* app, ModelOptions& model) {
  app->add_option("--gate-up", model.gate_up, "Rows of *_blocks tensors where the model type does not say it")
      ->check(one_of({"interleaved", "concatenated"}))
      ->type_name("interleaved|concatenated");
}

void add_threads(CLI::App* app, int& threads) {
  app->add_option("--threads", threads, "Threads; 0: one per core")
      ->check(CLI::Range(0, 4096))
      ->type_name("N")
      ->envname("MXFP4_PACK_THREADS")
      ->capture_default_str();
}

void add_device(CLI::App* app, DeviceOptions& device) {
  app->add_option("--device", device.name, "Who packs and unpacks; auto: a GPU where there is one")
      ->type_name("auto|cpu|cuda|cuda:0,1")
      ->envname("MXFP4_PACK_DEVICE")
      ->capture_default_str();
  app->add_option("--device-memory", device.memory, "Memory of each GPU to use at most; default: what threads need")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->type_name("SIZE");
}

void add_inspect(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("inspect", "Say what a checkpoint holds and whether it can be converted");
  static InspectOptions o;
  app->description(
      "mxfp4-pack inspect gpt-oss-20b/\n\nSays what a checkpoint holds, what would be converted and every problem. "
      "Reads headers only.");
  app->add_option("CKPT", o.checkpoint, "Checkpoint directory")->required()->type_name("");
  add_gate_up(app, o.model);
  add_common(app, common);
  app->callback([&] { run = [&] { return o.json = common.json, inspect(o), 0; }; });
}

/// The layout version of triton-hopper for kernels of 4 warps.
std::string four_warps(const std::string& backend, const std::string& version) {
  if (backend != "triton-hopper") fail(Kind::usage, "--num-warps is for backend triton-hopper only");
  return (version.empty() ? "c" : version) + "-w4";
}

/// What convert and each line of its --filelist take.
struct Conversion {
  ConvertOptions options;
  int num_warps = 8;

  ConvertOptions settled() const {
    ConvertOptions o = options;
    if (num_warps == 4) o.layout_version = four_warps(o.backend, o.layout_version);
    return o;
  }
};

/// Returns the options that must be given.
std::vector<CLI::Option*> add_conversion(CLI::App* app, Conversion& c) {
  ConvertOptions& o = c.options;
  auto* checkpoint = app->add_option("CKPT", o.checkpoint, "Checkpoint directory; only read");
  checkpoint->required()->type_name("");
  auto* out = app->add_option("OUT", o.out, "Directory to make; appears whole or not at all");
  out->required()->type_name("");
  auto* backend = app->add_option(
      "--backend", o.backend, "What to write; 'mxfp4-pack backends' lists them. auto: what the engine would choose");
  backend->required()->type_name("NAME")->envname("MXFP4_PACK_BACKEND");
  auto* engine = app->add_option("--engine", o.engine, "Who will read it; bytes differ");
  engine->required()
      ->check(one_of({"vllm", "sglang", "transformers"}))
      ->type_name("vllm|sglang|transformers")
      ->envname("MXFP4_PACK_ENGINE");
  app->add_option("--layout-version", o.layout_version,
                  "Which form of the layout; default: the first that "
                  "'mxfp4-pack backends' lists")
      ->type_name("NAME");
  app->add_option("--gpu", o.gpu, "With --backend auto: where it will run: h100, b200, sm75 to sm121, gfx950, cpu, ..")
      ->transform(architecture())
      ->type_name("GPU");
  app->add_option("--phase", o.phase, "With --backend auto on sm90: the fastest as measured, not the engine's choice")
      ->check(one_of({"prefill", "decode"}))
      ->type_name("prefill|decode");
  app->add_option("--num-warps", c.num_warps, "triton-hopper: warps of the engine's kernel")
      ->check(one_of({"4", "8"}))
      ->type_name("4|8")
      ->capture_default_str();
  app->add_option("--tp-size", o.tp_size, "Tensor-parallel ranks of the MoE layers: a set of files for each")
      ->check(CLI::Range(1, 1024))
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--rank", o.rank, "Write this rank only")->check(CLI::Range(0, 1023))->type_name("R");
  app->add_option("--format", o.format,
                  "packed: experts, for an engine with a loader. sharded-state: GPT-OSS whole, for SGLang without one")
      ->check(one_of({"packed", "sharded-state"}))
      ->type_name("packed|sharded-state")
      ->capture_default_str();
  app->add_flag("--dry-run", o.dry_run, "Print the plan: tensors, files, padding, memory, disk; write nothing");
  auto* force = app->add_flag("--force", o.force, "Replace an OUT that mxfp4-pack made");
  app->add_flag("--add", o.add, "Add a set (another backend, engine or tp) to an OUT of the same checkpoint")
      ->excludes(force);
  app->add_flag("--if-changed", o.if_changed,
                "Do nothing where OUT is of this source and these options; else replace it");
  auto* resume = app->add_flag_callback(
      "--resume", [&o] { o.leftover = Leftover::resume; },
      "Go on with what an interrupted run left; as ever where it left nothing");
  app->add_flag_callback(
         "--restart", [&o] { o.leftover = Leftover::discard; }, "Discard what an interrupted run left")
      ->excludes(resume);
  static const std::map<std::string, Link> links = {
      {"none", Link::none}, {"auto", Link::automatic}, {"hard", Link::hard}, {"reflink", Link::reflink}};
  app->add_option("--link", o.link, "Keep shards without experts whole, under their names: linked, or copied (none)")
      ->transform(by_name(links))
      ->type_name("auto|hard|reflink|none");
  app->add_flag("--sha256", o.sha256, "Write SHA256SUMS, which sha256sum -c reads and verify checks");
  app->add_flag("--allow-nan-scales", o.allow_nan_scales, "Take scale bytes 0xFF (NaN)");
  add_gate_up(app, o.model);
  add_threads(app, o.threads);
  add_device(app, o.device);
  return {checkpoint, out, backend, engine};
}

/// A line of a list; `defaults` from the command line.
ConvertOptions parse_conversion(const std::string& line, const Conversion& defaults) {
  CLI::App app;
  Conversion o = defaults;
  const auto needed = add_conversion(&app, o);
  needed[2]->required(defaults.options.backend.empty());
  needed[3]->required(defaults.options.engine.empty());
  try {
    app.parse(line, false);
  } catch (const CLI::ParseError& e) {
    fail(Kind::usage, "{}", e.what());
  }
  return o.settled();
}

void add_convert(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("convert", "Write the bytes that an engine's kernel reads");
  static Conversion o;
  static BatchOptions batch;
  app->description(
      "mxfp4-pack convert gpt-oss-20b/ gpt-oss-20b-marlin/ --backend marlin --engine vllm\n\n"
      "Writes OUT: the checkpoint with its experts packed for one backend of one engine.");
  const auto needed = add_conversion(app, o);
  const auto take_list = [needed](const std::string& name) {
    batch.filelist = name;
    for (CLI::Option* option : needed) option->required(false);
  };
  auto* list = app->add_option_function<std::string>("--filelist", take_list,
                                                     "Conversions, one a line: CKPT OUT and options; - for stdin");
  list->type_name("FILE")->excludes(needed[0])->excludes(needed[1]);
  app->add_flag("--fail-fast", batch.fail_fast, "End a list at the first failure")->needs(list);
  add_common(app, common);
  app->callback([&] {
    run = [&] {
      o.options.json = batch.json = common.json;
      if (!batch.filelist.empty())
        return convert_all(batch, [&](const std::string& line) { return parse_conversion(line, o); });
      const Json result = convert(o.settled());
      if (common.json && !o.options.dry_run) fmt::print("{}\n", one_line(result));
      return 0;
    };
  });
}

/// Times at OUT's shapes, or at one given here, and then no OUT is needed.
void add_bench(CLI::App* app, CLI::Option* out, BenchOptions& bench) {
  auto* run = app->add_flag("--bench", bench.run, "Print the times of the CUDA kernels for 1 to 8192 tokens");
  const auto add = [&](const char* name, int64_t& to, int64_t largest, const char* help) {
    const auto set = [out, &to](const int64_t& value) { to = value, out->required(false); };
    auto* option = app->add_option_function<int64_t>(name, set, help);
    option->type_name("N")->check(CLI::Range(int64_t(1), largest))->needs(run)->excludes(out);
    return option;
  };
  CLI::Option* shape[] = {add("--hidden", bench.hidden, 1 << 20, "With --bench and without OUT: hidden size"),
                          add("--intermediate", bench.intermediate, 1 << 20, "Intermediate size of an expert"),
                          add("--experts", bench.experts, 1024, "Experts of the layer"),
                          add("--top-k", bench.top_k, 32, "Experts of a token")};
  for (CLI::Option* a : shape)
    for (CLI::Option* b : shape)
      if (a != b) a->needs(b);
}

void add_verify(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("verify", "Prove that an output is right");
  static VerifyOptions o;
  static std::map<std::string, Level> levels = {
      {"files", Level::files}, {"bytes", Level::bytes}, {"kernels", Level::kernels}};
  static std::vector<std::string> layers;
  app->description(
      "mxfp4-pack verify gpt-oss-20b-marlin/ --source gpt-oss-20b/\n\n"
      "Exit code 0: right. 1: wrong, what and where is printed.");
  auto* out = app->add_option("OUT", o.out, "Output of convert");
  out->required()->type_name("");
  app->add_option("--source", o.source, "The checkpoint; without it the manifest's checksums stand for it")
      ->type_name("CKPT");
  app->add_option(
         "--level", o.level,
         "files: sizes and checksums. bytes: also unpack and compare every byte and pad. kernels: also compute "
         "MoE layers on the packed bytes and compare with the source's. Default: the highest possible")
      ->transform(by_name(levels))
      ->type_name("files|bytes|kernels");
  app->add_option("--layers", layers, "Layers to compute, by number; default: the first")
      ->delimiter(',')
      ->check(layer_number())
      ->type_name("0,5,..|all");
  auto* tokens = app->add_option("--tokens", o.kernels.tokens, "Batches to compute");
  tokens->delimiter(',')->check(CLI::Range(1, 65536))->type_name("N,..")->capture_default_str();
  app->add_option("--seed", o.kernels.seed, "Of routing and inputs")->type_name("N")->capture_default_str();
  app->add_option("--tolerance", o.kernels.tolerance, "Largest relative L2 error; default: the kernel's own")
      ->check(CLI::PositiveNumber)
      ->type_name("X");
  add_bench(app, out, o.bench);
  add_threads(app, o.threads);
  add_device(app, o.device);
  add_common(app, common);
  app->callback([&, tokens] {
    if (tokens->count()) o.bench.tokens = o.kernels.tokens;
    run = [&] {
      o.json = common.json;
      o.kernels.all_layers = std::count(layers.begin(), layers.end(), "all") > 0;
      for (const std::string& layer : layers)
        if (layer != "all") o.kernels.layers.push_back(std::stoll(layer));
      return verify(o) ? 0 : 1;
    };
  });
}

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

void add_diff(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("diff", "Say where two outputs differ, or an output and an engine's live state");
  static DiffOptions o;
  app->description(
      "mxfp4-pack diff gpt-oss-20b-marlin/ state.safetensors\n\nSays per tensor which expert, row and column differ "
      "first, how many do, and the likely cause.\nExit code 0: equal. 1: different.");
  app->add_option("A", o.a, "Output of convert")->required()->type_name("");
  app->add_option("B", o.b, "Another one, or safetensors: a file or a directory")->required()->type_name("");
  app->add_option("--rank", o.rank, "This tensor-parallel rank only; of a dump: its rank, 0 unless given")
      ->check(CLI::Range(0, 1023))
      ->type_name("R");
  add_common(app, common);
  app->callback([&] { run = [&] { return o.json = common.json, diff(o) ? 0 : 1; }; });
}

void add_backends(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("backends", "List what can be written");
  app->description(
      "mxfp4-pack backends\n\nLists engine, backend, layout version, GPU and the versions that each fits.");
  add_common(app, common);
  app->callback([&] { run = [&] { return list_backends(common.json), 0; }; });
}

void add_synth(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("synth", "Write a random checkpoint with a published one's structure");
  static SynthOptions o;
  std::string models;
  for (const SynthModel& m : synth_models()) models += fmt::format("{}{}", models.empty() ? "" : ", ", m.name);
  app->description(
      "mxfp4-pack synth gpt-oss-20b gpt-oss-random/ --layers 2\n\nWrites names, dtypes, shapes, config and shards of "
      "MODEL, filled at random.\nModels: " +
      models);
  app->add_option("MODEL", o.model, "Whose structure")->required()->type_name("");
  app->add_option("DEST", o.dest, "Directory to make")->required()->type_name("");
  const auto size = [&](const char* name, std::optional<int64_t>& value, const char* help) {
    app->add_option(name, value, help)->check(CLI::Range(int64_t(1), int64_t(1) << 32))->type_name("N");
  };
  size("--layers", o.sizes.layers, "Layers; each size defaults to the published one");
  size("--experts", o.sizes.experts, "Experts of a layer");
  size("--hidden", o.sizes.hidden, "Hidden size");
  size("--intermediate", o.sizes.intermediate, "Intermediate size of an expert");
  size("--vocab", o.sizes.vocab, "Vocabulary");
  app->add_flag("--tiny", o.sizes.tiny, "A few hundred KB, unless sizes are given");
  app->add_option("--seed", o.seed, "Another seed, other bytes; the same seed, the same bytes")
      ->type_name("S")
      ->capture_default_str();
  add_threads(app, o.threads);
  add_common(app, common);
  app->callback([&] {
    run = [&] {
      std::unique_ptr<Progress> progress;
      int64_t before = 0;
      o.progress = [&](int64_t done, int64_t total) {
        throw_if_interrupted();
        if (!progress) progress = std::make_unique<Progress>("writing", total);
        progress->add(done - before);
        before = done;
      };
      synth(o);
      progress.reset();
      if (common.json)
        fmt::print("{}\n", one_line(Json{{"model", o.model}, {"dest", o.dest}, {"bytes", before}}));
      else
        note(fmt::format("{}: {} at random, seed {}", o.dest, human_bytes(before), o.seed));
      return 0;
    };
  });
}

void add_bench(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("bench", "Measure what this machine can do");
  static MachineBenchOptions o;
  app->description(
      "mxfp4-pack bench --dir /models --model gpt-oss-120b\n\nMeasures memory, disk and packing, and says what that "
      "makes of converting a model. Takes a minute.");
  app->add_option("--dir", o.dir, "Folder on the file system to measure; a GB is written there and removed")
      ->type_name("DIR")
      ->capture_default_str();
  app->add_option("--model", o.model, "Model to predict; those of 'mxfp4-pack synth --help'")
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option("--repeats", o.repeats, "Medians of so many measurements")
      ->check(CLI::Range(1, 1000))
      ->type_name("N")
      ->capture_default_str();
  add_threads(app, o.threads);
  add_common(app, common);
  app->callback([&] { run = [&] { return o.json = common.json, bench(o), 0; }; });
}

int report(const Error& e, bool json) {
  if (json) {
    const Json j = {{"error", {{"kind", name_of(e.kind)}, {"lines", e.lines}}}};
    fmt::print("{}\n", one_line(j));
  } else {
    for (const std::string& line : e.lines) fmt::print(stderr, "mxfp4-pack: error: {}\n", line);
  }
  if (e.kind == Kind::interrupted) return pending_signal() == SIGTERM ? 143 : 130;
  return 2;
}

bool asked_for_json(int argc, char** argv) {
  return std::any_of(argv, argv + argc, [](const char* a) { return std::string_view(a) == "--json"; });
}

}  // namespace

int main(int argc, char** argv) {
  install_signal_handlers();
  const bool json = asked_for_json(argc, argv);
  try {
    Common common;
    Run run;
    CLI::App app(
        "mxfp4-pack convert gpt-oss-20b/ OUT/ --backend marlin --engine vllm\nmxfp4-pack verify OUT/ --source "
        "gpt-oss-20b/\n\n"
        "Packs the experts of MXFP4 mixture-of-experts checkpoints once, offline, into the bytes that an\n"
        "inference engine would compute at every start, and proves them right.",
        "mxfp4-pack");
    app.require_subcommand(1);
    app.set_version_flag("--version", [] { return "mxfp4-pack " MXFP4_VERSION "\n" + cuda_description(); });
    app.get_formatter()->column_width(34);
    add_inspect(app, common, run);
    add_convert(app, common, run);
    add_verify(app, common, run);
    add_unpack(app, common, run);
    add_diff(app, common, run);
    add_backends(app, common, run);
    add_synth(app, common, run);
    add_bench(app, common, run);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
      if (e.get_exit_code() == 0) return app.exit(e);
      fail(Kind::usage, "{}; see mxfp4-pack --help", e.what());
    }
    set_verbosity(common.quiet ? Verbosity::quiet : common.verbose ? Verbosity::verbose : Verbosity::normal);
    return run();
  } catch (const Error& e) {
    return report(e, json);
  } catch (const DeviceError& e) {
    return report({Kind::device, e.what()}, json);
  } catch (const std::bad_alloc&) {
    return report({Kind::io, "out of memory"}, json);
  } catch (const std::exception& e) {
    return report({Kind::io, e.what()}, json);
  }
}
