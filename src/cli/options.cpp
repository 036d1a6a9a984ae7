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

void add_common(CLI::App* app, Common& common) {
  app->option_defaults()->group("General");
  app->add_flag("--json", common.json, "Print one JSON object on stdout, even for an error");
  auto* quiet = app->add_flag("-q,--quiet", common.quiet, "Print only problems and requested results");
  app->add_flag("-v,--verbose", common.verbose, "Print also choices and their reasons, each tensor and file, and times")
      ->excludes(quiet);
  app->set_help_flag("-h,--help", "Print this help")->group("General");
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
  app->add_option("--gate-up", model.gate_up,
                  "Set the order of gate and up rows that share a tensor, if the config does not tell")
      ->check(one_of({"interleaved", "concatenated"}))
      ->type_name("interleaved|concatenated");
}

void add_follow_links(CLI::App* app, Links& links, const char* whose) {
  app->add_flag_callback(
      "--follow-links", [&links] { links = Links::follow; },
      fmt::format("Read files of {} that are links to places outside of it", whose));
}

void add_threads(CLI::App* app, int& threads) {
  app->add_option("--threads", threads, "Use N threads; 0: one per core")
      ->check(range(0, 4096))
      ->type_name("N")
      ->envname("MXFP4_PACK_THREADS")
      ->capture_default_str();
}

void add_device(CLI::App* app, DeviceOptions& device) {
  app->add_option("--device", device.name, "Pack, unpack and compute on this device; auto: a GPU only if it is faster")
      ->check(device_name())
      ->type_name("auto|cpu|cuda|cuda:0,1")
      ->envname("MXFP4_PACK_DEVICE")
      ->capture_default_str();
}

void add_page_cache(CLI::App* app, PageCache& setting, const std::string& effect) {
  static const std::map<std::string, PageCache> settings = {
      {"auto", PageCache::automatic}, {"yes", PageCache::yes}, {"no", PageCache::no}};
  app->add_option("--page-cache", setting, effect + "; auto, the default: if memory has room")
      ->transform(by_name(settings))
      ->type_name("auto|yes|no")
      ->envname("MXFP4_PACK_PAGE_CACHE");
}

}  // namespace mxfp4::cli
