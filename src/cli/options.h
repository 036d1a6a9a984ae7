// Options of several subcommands.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "src/cli/entry.h"
#include "src/device/device_choice.h"
#include "src/io/page_cache.h"
#include "src/models/model.h"

namespace mxfp4::cli {

/// The options of all subcommands.
struct Common {
  bool json = false, quiet = false, verbose = false;
};

/// Throws CLI::ParseError if an environment variable has a value that its option refuses. CLI11 2.4 ignores such a
/// value.
void check_environment(CLI::App& app);

/// The action of the chosen subcommand; returns the exit code.
using Run = std::function<int()>;

/// Empty if `text` is one of `names`; else a message with the most similar name.
std::string unless_one_of(const std::string& text, const std::vector<std::string>& names);

/// A validator that adds nothing to the help, since the option's type names the values.
CLI::Validator one_of(std::vector<std::string> values);

/// As one_of(), for names of enum values.
template <class T>
CLI::Validator by_name(const std::map<std::string, T>& values) {
  const auto find = [values](std::string& text) {
    std::vector<std::string> names;
    for (const auto& [name, value] : values) names.push_back(name);
    const std::string problem = unless_one_of(text, names);
    if (problem.empty()) text = std::to_string(int(values.at(text)));
    return problem;
  };
  return CLI::Validator(find, "");
}

/// Numbers from `low` to `high`. CLI11 alone would convert negative numbers to large unsigned ones.
template <class T>
CLI::Validator range(T low, T high) {
  const auto check = [low, high](std::string& text) {
    const bool good = (std::is_signed_v<T> || !text.starts_with("-")) && CLI::Range(low, high)(text).empty();
    return good ? std::string() : fmt::format("{} is no number from {} to {}", text, low, high);
  };
  return CLI::Validator(check, "");
}

/// `command` becomes `run` if the subcommand is chosen.
void add_common(CLI::App* app, Common& common, Run& run, Run command);
void add_gate_up(CLI::App* app, ModelOptions& model);
void add_follow_links(CLI::App* app, Links& links);
void add_threads(CLI::App* app, int& threads);
void add_device(CLI::App* app, DeviceOptions& device);
void add_page_cache(CLI::App* app, PageCache& setting);
/// --part; the caller opens the group "Many nodes".
CLI::Option* add_part_number(CLI::App* app, std::string& part);
CLI::Option* add_published(CLI::App* app, std::string& list);

}  // namespace mxfp4::cli
