#include "src/cli/options.h"

#include <algorithm>
#include <cstdlib>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/terminal.h"

namespace mxfp4::cli {

namespace {

CLI::Validator device_name() {
  const auto read = [](const std::string& text) {
    try {
      gpus_in(text);
    } catch (const Error& e) {
      return e.lines.front();
    }
    return std::string();
  };
  return CLI::Validator(read, "");
}

}  // namespace

std::string unless_one_of(const std::string& text, const std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), text) != names.end()) return {};
  return fmt::format("'{}' is none of {}{}", text, fmt::join(names, ", "), did_you_mean(text, names));
}

CLI::Validator one_of(std::vector<std::string> values) {
  return CLI::Validator([values](std::string& text) { return unless_one_of(text, values); }, "");
}

void add_common(CLI::App* app, Common& common, Run& run, Run command) {
  app->callback([&run, command = std::move(command)] { run = command; });
  app->option_defaults()->group("General");
  add(app,
      {.name = "--json",
       .help = "Print one JSON object on stdout, even for an error",
       .manual = R"(Print one JSON object on standard output, even for an error; see
.Sx JSON .)"},
      common.json);
  auto* quiet = add(app, {.name = "-q,--quiet", .help = "Print only problems and requested results"}, common.quiet);
  add(app, {.name = "-v,--verbose", .help = "Print also choices and their reasons, each tensor and file, and times"},
      common.verbose)
      ->excludes(quiet);
  const Entry help = {.name = "-h,--help", .help = "Print this help", .manual = R"(Print the command's help, like
.Ql mxfp4-pack help COMMAND .)"};
  declare(app->set_help_flag(help.name, help.help), help)->group("General");
}

void check_environment(CLI::App& app) {
  progress_seconds();
  for (CLI::App* command : app.get_subcommands())
    for (CLI::Option* option : command->get_options()) {
      const char* value = std::getenv(option->get_envname().c_str());
      if (!value || !*value || option->count() != 0) continue;
      option->add_result(value);
      option->run_callback();
    }
}

void add_gate_up(CLI::App* app, ModelOptions& model) {
  add(app,
      {.name = "--gate-up",
       .value = "interleaved|concatenated",
       .help = "Set the order of gate and up rows that share a tensor, if config.json does not"},
      model.gate_up)
      ->check(one_of({"interleaved", "concatenated"}));
}

void add_follow_links(CLI::App* app, Links& links) {
  add_switch(app,
             {.name = "--follow-links",
              .help = "Read files of the checkpoint that are links to places outside of it",
              .manual = R"(Read files of the checkpoint that are links to places outside of it.
[Such a shard or config is an error.])"},
             [&links] { links = Links::follow; });
}

void add_threads(CLI::App* app, int& threads) {
  add(app,
      {.name = "--threads",
       .value = "N",
       .help = "Use N threads; 0: one per core",
       .manual = R"(Use
.Ar N
threads [0: one per core].
Unless
.Ar N
is 1,
.Cm convert , verify
and
.Cm unpack
start up to two more, which wait for I/O.)",
       .variable = "MXFP4_PACK_THREADS"},
      threads)
      ->check(range(0, 4096))
      ->capture_default_str();
}

void add_device(CLI::App* app, DeviceOptions& device) {
  add(app,
      {.name = "--device",
       .value = "auto|cpu|cuda|cuda:0,1",
       .help = "Pack, unpack and compute on this device; auto: a GPU only if it is faster",
       .manual = R"(Pack, unpack and compute on this device.
.Cm cuda
is the first GPU.
.Cm auto ,
the default, takes a GPU for level kernels, and for
.Cm convert
with fewer than four threads and at least 1 GiB.)",
       .variable = "MXFP4_PACK_DEVICE"},
      device.name)
      ->check(device_name())
      ->capture_default_str();
}

void add_page_cache(CLI::App* app, PageCache& setting) {
  static const std::map<std::string, PageCache> settings = {
      {"auto", PageCache::automatic}, {"yes", PageCache::yes}, {"no", PageCache::no}};
  add(app,
      {.name = "--page-cache",
       .value = "auto|yes|no",
       .help =
           "Leave the files of OUT in the page cache, for a faster start of the engine; auto, the default: if memory "
           "has room",
       .manual = R"(Leave the files of
.Ar OUT
in the page cache, for a faster start of the engine.
.Cm auto ,
the default, does so if they need at most seven eighths of the available memory, also in each cgroup.)",
       .variable = "MXFP4_PACK_PAGE_CACHE"},
      setting)
      ->transform(by_name(settings));
}

CLI::Option* add_part_number(CLI::App* app, std::string& part) {
  return add(app,
             {.name = "--part",
              .value = "I/N|auto",
              .help = "Do only part I of N, counted from 0; auto: as Slurm, Kubernetes or MPI says",
              .manual = R"(Do only part
.Ar I
of
.Ar N ,
counted from 0; see
.Sx MANY NODES .)"},
             part);
}

CLI::Option* add_published(CLI::App* app, std::string& list) {
  return add(
      app,
      {.name = "--published",
       .value = "FILE",
       .help = "Compare the original files with published hashes: a SHA256SUMS, the hub's list of files in JSON, or "
               "hf://OWNER/NAME",
       .manual = R"(Compare the original files with the hashes in
.Ar FILE ;
see
.Xr mxfp4-pack-sources 7 .)"},
      list);
}

}  // namespace mxfp4::cli
