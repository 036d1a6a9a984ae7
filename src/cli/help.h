// The text of --help, and messages about a wrong command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "src/base/error.h"

namespace mxfp4::cli {

/// The help of a command: its purpose, examples, usage, and options in groups. Fits the terminal's width.
std::string help_of(const CLI::App* app, const std::string& name);

/// Throws Error{usage} if an option that needs a value is followed by another option. CLI11 would use that option as
/// the value.
void check_values(const CLI::App& command, const std::vector<std::string>& words);

/// Puts the name of an environment variable before each line about a value that came from that variable.
Error naming_variables(const Error& e, const CLI::App& command);

/// All problems with a command line, with the command that prints its help. app: of the whole command line.
Error usage_error(const CLI::App& app, const CLI::ParseError& e);

}  // namespace mxfp4::cli
