// The declaration of an option. --help, the lists in mxfp4-pack(1) and the completions, which read --help, follow it.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <type_traits>

namespace mxfp4::cli {

struct Entry {
  const char* name;           // "--tp-size", "-q,--quiet"
  std::string value = {};     // "N", "auto|cpu"; empty for a flag
  std::string help = {};      // one sentence without a full stop
  const char* manual = "";    // for mxfp4-pack(1), in mdoc(7); "": the help
  const char* variable = "";  // the environment variable with its default
};

/// Sets value name, variable and manual text of an option that was added with the entry's name and help.
CLI::Option* declare(CLI::Option* option, const Entry& entry);

/// Adds an option, or a flag for a bool, that sets `member`.
template <class T>
CLI::Option* add(CLI::App* app, const Entry& e, T& member) {
  if constexpr (std::is_same_v<T, bool>)
    return declare(app->add_flag(e.name, member, e.help), e);
  else
    return declare(app->add_option(e.name, member, e.help), e);
}

/// Adds an option that calls `take` with its value.
template <class T, class Take>
CLI::Option* add_call(CLI::App* app, const Entry& e, Take take) {
  return declare(app->add_option_function<T>(e.name, take, e.help), e);
}

/// Adds a flag that calls `take`.
inline CLI::Option* add_switch(CLI::App* app, const Entry& e, std::function<void()> take) {
  return declare(app->add_flag_callback(e.name, std::move(take), e.help), e);
}

/// The lists of options in mxfp4-pack(1), in mdoc(7), each between `.\" {NAME` and `.\" }`.
std::string manual_lists(const CLI::App& root);

}  // namespace mxfp4::cli
