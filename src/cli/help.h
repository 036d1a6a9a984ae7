// What --help prints, and what is said of a wrong command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "src/base/error.h"

namespace mxfp4::cli {

/// The help of a command: what it does, examples, usage, options in groups. Fits the terminal's width.
std::string help_of(const CLI::App* app, const std::string& name);

/// Everything that is wrong with the words that a command was given.
std::vector<std::string> usage_problems(const CLI::App& command, const CLI::ParseError& e);

/// Throws Error{usage} where an option that needs a value is followed by another option: CLI11 takes that for the
/// value.
void check_values(const CLI::App& command, const std::vector<std::string>& words);

/// Lines about the value of an option begin with the variable that it is of, if it is of one.
Error naming_variables(const Error& e, const CLI::App& command);

/// An Error{usage} whose last line goes on with what to do: "..; see there", or "..? See there".
Error with_advice(std::vector<std::string> lines, std::string advice);

/// Everything that is wrong with a command line, and where its help is. app: that of the whole command line.
Error usage_error(const CLI::App& app, const CLI::ParseError& e);

}  // namespace mxfp4::cli
