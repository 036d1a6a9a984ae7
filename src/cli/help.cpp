#include "src/cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "src/base/terminal.h"

namespace mxfp4::cli {

namespace {

constexpr int wide = 72;  // narrower help has descriptions below the names

/// A name with its description in a second column.
std::string entry(const std::string& name, const std::string& text) {
  const int width = text_width(1), column = width >= wide ? 28 : 6;
  std::string line = "  " + name;
  const bool fits = int(line.size()) < column - 1;
  line += fits ? std::string(size_t(column) - line.size(), ' ') : "\n" + std::string(size_t(column), ' ');
  return line + wrapped(text, width, column) + "\n";
}

std::string heading(const std::string& text) { return "\n" + toned(Tone::heading, text + ":") + "\n"; }

/// "-q, --quiet", "--tp-size N".
std::string name_of(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true);
  std::string name = option.get_name(false, true);
  if (const size_t comma = name.find(','); comma != name.npos) name.insert(comma + 1, " ");
  const std::string type = option.get_type_size() != 0 ? option.get_type_name() : "";
  return type.empty() ? name : name + " " + type;
}

std::string text_of(const CLI::Option& option) {
  std::string text = option.get_description();
  if (!option.get_default_str().empty()) text += fmt::format(" [default: {}]", option.get_default_str());
  if (!option.get_envname().empty()) text += fmt::format(" [env: {}]", option.get_envname());
  if (option.get_required() && !option.get_positional()) text += " (required)";
  return text;
}

std::string options_of(const CLI::App& app) {
  std::string out;
  std::vector<std::string> groups = app.get_groups();
  std::stable_partition(groups.begin(), groups.end(), [](const std::string& g) { return g != "General"; });
  for (const std::string& group : groups) {
    const auto options =
        app.get_options([&](const CLI::Option* o) { return o->get_group() == group && !o->get_positional(); });
    if (group.empty() || options.empty()) continue;
    out += heading(group);
    for (const CLI::Option* o : options) out += entry(name_of(*o), text_of(*o));
  }
  return out;
}

std::string usage_of(const CLI::App& app, const std::string& name) {
  std::string line = name;
  if (app.get_parent()) line += " [OPTIONS]";
  for (const CLI::Option* o : app.get_options([](const CLI::Option* o) { return o->get_positional(); }))
    line += " " + o->get_name(true);
  if (!app.get_parent()) line += " COMMAND [OPTIONS]";
  return heading("Usage") + "  " + wrapped(line, text_width(1), 2) + "\n";
}

}  // namespace

std::string help_of(const CLI::App* app, const std::string& name) {
  std::string out = wrapped(app->get_description(), text_width(1)) + "\n" + usage_of(*app, name);
  if (!app->get_footer().empty()) {
    out += heading("Examples");
    std::istringstream examples(app->get_footer());
    for (std::string line; std::getline(examples, line);) out += "  " + line + "\n";
  }
  const auto positionals = app->get_options([](const CLI::Option* o) { return o->get_positional(); });
  if (!positionals.empty()) out += heading("Arguments");
  for (const CLI::Option* o : positionals) out += entry(name_of(*o), text_of(*o));
  const auto commands = app->get_subcommands([](const CLI::App*) { return true; });
  if (!commands.empty()) out += heading("Commands");
  for (const CLI::App* command : commands) {
    const std::string& text = command->get_description();
    out += entry(command->get_name(), text.substr(0, text.find('\n')));
  }
  return out + options_of(*app);
}

namespace {

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* o : app.get_options())
    for (const std::string& name : o->get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names = {"help"};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

void add_missing(const CLI::App& app, std::vector<std::string>& lines) {
  std::vector<std::string> missing;
  for (const CLI::Option* o : app.get_options())
    if (o->get_required() && o->count() == 0) missing.push_back(name_of(*o));
  if (!missing.empty())
    lines.push_back(fmt::format("{} {} missing", fmt::join(missing, ", "), missing.size() > 1 ? "are" : "is"));
}

/// The message for a missing value, or for an option given twice.
std::string mismatch(const CLI::App& command, const std::string& what) {
  const std::string name = what.substr(0, what.find(':'));
  const CLI::Option* option = command.get_option_no_throw(name);
  if (!option) return what;
  return option->count() > 1 ? name + ": given more than once"
                             : fmt::format("{}: its value is missing, {}", name, option->get_type_name());
}

bool is_of_variable(const CLI::Option& option) {
  const char* value = std::getenv(option.get_envname().c_str());
  return value && option.results() == std::vector<std::string>{value};
}

/// Whether the command line gives another option the same value.
bool is_value_of_another(const CLI::App& command, const CLI::Option& option) {
  const auto options = command.get_options();
  return std::any_of(options.begin(), options.end(), [&](const CLI::Option* other) {
    return other != &option && other->count() > 0 && other->results() == option.results();
  });
}

/// The message for a wrong value. If the value came from an environment variable, the message names the variable.
std::string wrong_value(const CLI::App& command, const std::string& what) {
  const std::string name = what.substr(0, what.find(':'));
  const CLI::Option* option = command.get_option_no_throw(name);
  return option && is_of_variable(*option) ? option->get_envname() + what.substr(name.size()) : what;
}

/// The message for a missing or unknown command, with all commands.
std::string command_problem(const CLI::App& app) {
  const std::vector<std::string> names = command_names(app), words = app.remaining();
  if (words.empty()) return fmt::format("a command is missing: {}", fmt::join(names, ", "));
  return fmt::format("no command '{}'{}", words.front(), did_you_mean(words.front(), names));
}

/// All problems with the words that a command was given.
std::vector<std::string> usage_problems(const CLI::App& command, const CLI::ParseError& e) {
  std::vector<std::string> lines;
  std::vector<std::string> words;  // not expected
  for (const std::string& word : command.remaining())
    if (word.starts_with("-"))
      lines.push_back(
          fmt::format("no option {}{}", word, did_you_mean(word.substr(0, word.find('=')), option_names(command))));
    else
      words.push_back(word);
  const bool is_known = lines.empty();  // else these words may be values of the unknown option
  const bool is_required = dynamic_cast<const CLI::RequiredError*>(&e);
  if (!words.empty() && is_known && (is_required || dynamic_cast<const CLI::ExtrasError*>(&e)))
    lines.push_back(
        fmt::format("'{}' {} too many", fmt::join(words, "', '"), words.size() > 1 ? "are words" : "is one word"));
  if (is_required)
    add_missing(command, lines);
  else if (dynamic_cast<const CLI::ArgumentMismatch*>(&e))
    lines.push_back(mismatch(command, e.what()));
  if (lines.empty()) lines.push_back(wrong_value(command, e.what()));
  return lines;
}

/// An Error{usage} with advice at the end of its last line: "..; see there", or after a question "..? See there".
Error with_advice(std::vector<std::string> lines, std::string advice) {
  const bool is_question = lines.back().ends_with('?');
  if (is_question) advice[0] = char(std::toupper(advice[0]));
  lines.back() += (is_question ? " " : "; ") + advice;
  return {ErrorKind::usage, std::move(lines)};
}

}  // namespace

void check_values(const CLI::App& command, const std::vector<std::string>& words) {
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const CLI::Option* option = words[i].starts_with("--") ? command.get_option_no_throw(words[i]) : nullptr;
    const std::string& next = words[i + 1];
    if (!option || option->get_expected_max() == 0 || !next.starts_with("-") || !command.get_option_no_throw(next))
      continue;
    throw with_advice({fmt::format("{}: its value is missing, {}", words[i], option->get_type_name())},
                      fmt::format("see mxfp4-pack {} --help", command.get_name()));
  }
}

Error naming_variables(const Error& e, const CLI::App& command) {
  std::vector<std::string> lines = e.lines;
  for (const CLI::Option* option : command.get_options()) {
    if (e.kind != ErrorKind::usage || !is_of_variable(*option)) continue;
    const std::string begin = option->get_envname() + ": ", value = option->results().front();
    const bool is_others = is_value_of_another(command, *option);
    for (std::string& line : lines) {
      const bool quotes = !is_others && !line.starts_with("--") && line.find("'" + value + "'") != line.npos;
      if (!line.starts_with(begin) && (quotes || line.starts_with(option->get_name() + " " + value)))
        line.insert(0, begin);
    }
  }
  return {e.kind, lines};
}

Error usage_error(const CLI::App& app, const CLI::ParseError& e) {
  const auto chosen = app.get_subcommands();
  const std::vector<std::string> words = app.remaining();  // that belong to no command
  const bool is_option = !words.empty() && words.front().starts_with("-");
  std::vector<std::string> lines;
  if (chosen.empty())
    lines = is_option ? usage_problems(app, e) : std::vector{command_problem(app)};
  else if (is_option)
    lines = {fmt::format("{} is before the command; put options after the command", words.front())};
  else
    lines = usage_problems(*chosen.back(), e);
  const std::string of = chosen.empty() ? "" : chosen.back()->get_name() + " ";
  return with_advice(lines, fmt::format("see mxfp4-pack {}--help", of));
}

}  // namespace mxfp4::cli
