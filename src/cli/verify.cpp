#include "src/verify/verify.h"

#include <cmath>

#include "src/cli/checkpoint_path.h"
#include "src/cli/commands.h"
#include "src/cli/part_option.h"

namespace mxfp4::cli {

namespace {

/// Accepts digits only: 1e3 and 1.7 are not numbers of layers.
CLI::Validator layer_number() {
  const auto check = [](std::string& text) {
    const bool digits = text.size() <= 9 && !text.empty() && text.find_first_not_of("0123456789") == text.npos;
    return digits || text == "all" ? std::string() : fmt::format("{} is not the number of a layer, nor all", text);
  };
  return CLI::Validator(check, "");
}

/// A list separated by commas, whose entries pass a check.
CLI::Validator each(const CLI::Validator& check) {
  const auto check_all = [check](std::string& list) {
    if (("," + list + ",").find(",,") != list.npos) return fmt::format("'{}' has a comma too many", list);
    for (std::string& part : CLI::detail::split(list, ','))
      if (std::string problem = check(part); !problem.empty()) return problem;
    return std::string();
  };
  return CLI::Validator(check_all, "");
}

CLI::Validator tolerance() {
  const auto check = [](std::string& text) {
    double value = 0;
    const bool number = CLI::detail::lexical_cast(text, value) && std::isfinite(value) && value > 0;
    return number ? std::string() : fmt::format("{} is not a finite number above 0", text);
  };
  return CLI::Validator(check, "");
}

/// Options of level kernels.
struct KernelsOptions {
  CLI::Option *layers, *tokens, *seed, *tolerance;

  /// Throws Error{usage} for an option that would have no effect, since no layer is computed.
  void check(const VerifyOptions& o) const {
    const bool is_level = o.level == Level::kernels || o.level == Level::highest;
    if (!o.source.empty() && is_level) return;
    for (const CLI::Option* option : {layers, tokens, seed, tolerance})
      if (option->count())
        fail(ErrorKind::usage, "{} belongs to level kernels, {}", option->get_name(),
             is_level ? "which compares with the checkpoint; give it with --source"
                      : "but --level names a lower level, which computes no layer");
  }
};
CLI::Option* add_tolerance(CLI::App* app, VerifyOptions& o) {
  return add(app,
             {.name = "--tolerance",
              .value = "X",
              .help = "Accept this relative L2 error; default: by device and backend",
              .manual = R"(Accept this relative L2 error.
[1e-5 on the CPU, 1e-3 for lossy sets, and on a GPU 3e-3 times the square root of the ranks.])"},
             o.kernels.tolerance)
      ->check(tolerance());
}

void add_save(CLI::App* app, VerifyOptions& o) {
  add(app,
      {.name = "--save",
       .value = "FILE",
       .help = "Write the computed batches to a new safetensors file",
       .manual = R"(Write the computed batches to a new safetensors file, to run another kernel on them.
Batch 0 has the tensors 0.x, 0.ids (-1: no expert), 0.weights and 0.out, and 0.layer in the metadata.)"},
      o.save);
}

using Lists = std::vector<std::string>;  // one for each time the option is given
std::vector<std::string> entries(const Lists& lists) { return CLI::detail::split(CLI::detail::join(lists, ","), ','); }

void take_layers(const Lists& lists, KernelOptions& o) {
  for (const std::string& layer : entries(lists))
    if (layer == "all")
      o.all_layers = true;
    else
      o.layers.push_back(std::stoll(layer));
}

void take_tokens(const Lists& lists, KernelOptions& o) {
  o.tokens.clear();
  for (const std::string& tokens : entries(lists)) o.tokens.push_back(std::stoll(tokens));
}

KernelsOptions add_kernels(CLI::App* app, CLI::Option* source, VerifyOptions& o) {
  app->option_defaults()->group("Level kernels");
  KernelsOptions added;
  added.layers = add_call<Lists>(app,
                                 {.name = "--layers",
                                  .value = "0,5,..|all",
                                  .help = "Compute these layers; default: the first",
                                  .manual = "Compute these layers [the first]."},
                                 [&o](const Lists& lists) { take_layers(lists, o.kernels); });
  added.layers->allow_extra_args(false)->check(each(layer_number()))->needs(source);
  added.tokens =
      add_call<Lists>(app,
                      {.name = "--tokens",
                       .value = "N,..",
                       .help = "Compute batches of these sizes",
                       .manual = "Compute batches of these sizes [1,16,256], and one that reaches every expert."},
                      [&o](const Lists& lists) { take_tokens(lists, o.kernels); });
  added.tokens->allow_extra_args(false)->check(each(range(1, 65536)));
  added.tokens->default_str(fmt::format("{}", fmt::join(o.kernels.tokens, ",")));
  added.seed = add(app,
                   {.name = "--seed",
                    .value = "N",
                    .help = "Seed the inputs and the routing",
                    .manual = "Seed the inputs and the routing [1]."},
                   o.kernels.seed);
  added.seed->check(range(uint64_t(0), UINT64_MAX))->capture_default_str();
  added.tolerance = add_tolerance(app, o);
  add_save(app, o);
  return added;
}

void add_level(CLI::App* app, Level& level) {
  static const std::map<std::string, Level> levels = {
      {"files", Level::files}, {"bytes", Level::bytes}, {"kernels", Level::kernels}};
  add(app,
      {.name = "--level",
       .value = "files|bytes|kernels",
       .help = "files: sizes and checksums. bytes: also every packed and pad byte, unpacked. kernels: also MoE layers, "
               "computed from the packed bytes and from the source. Default: the highest possible",
       .manual = R"(Choose the checks, each of which includes those before it:
.Bl -tag -width kernels -compact
.It Cm files
sizes and checksums of files and tensors;
.It Cm bytes
every packed and pad byte, unpacked;
.It Cm kernels
MoE layers, computed from the packed bytes and, in double precision, from the source.
.El
[With
.Fl -source :
kernels.
Without: bytes, or files for a lossy set.]
.Pa SECURITY.md
lists what a level cannot see.)"},
      level)
      ->transform(by_name(levels));
}

}  // namespace

void add_verify(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("verify", "Check an output");
  static VerifyOptions o;
  app->description(
      "Check an output\n\n"
      "Compares OUT with its manifest and the checkpoint, and prints a line for each problem. Exit code 0: right. 1: "
      "wrong. 2: not checked.");
  app->footer(
      "mxfp4-pack verify out/ --source gpt-oss-20b/\nmxfp4-pack verify out/ --source gpt-oss-20b/ --layers all");
  auto* out = app->add_option("OUT", o.out, "Output of convert");
  out->required()->type_name("");
  app->option_defaults()->group("What is compared");
  auto* source =
      add(app,
          {.name = "--source",
           .value = "CKPT",
           .help = "Compare with this checkpoint; default: with its checksums in the manifest",
           .manual =
               "Compare with this checkpoint, its tensors from level bytes on [with their checksums in the manifest]."},
          o.source);
  CLI::Option* published = add_published(app, o.published);
  add_follow_links(app, o.links);
  add_level(app, o.level);
  const KernelsOptions kernels = add_kernels(app, source, o);
  static std::string part;
  app->option_defaults()->group("Many nodes");
  add_part_number(app, part)->excludes(app->get_option("--save"))->excludes(published);
  app->option_defaults()->group("Resources");
  add_threads(app, o.threads);
  add_device(app, o.device);
  add_page_cache(app, o.page_cache);
  add_common(app, common, run, [&, kernels] {
    o.json = common.json;
    if (!part.empty()) o.part = read_part(part);
    kernels.check(o);
    if (!o.source.empty()) o.source = checkpoint_path(o.source);
    return verify(o) ? 0 : 1;
  });
}

}  // namespace mxfp4::cli
