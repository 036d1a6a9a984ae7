// The command line: options to one function per subcommand. The only catch and the only exit code are here.
#include <algorithm>
#include <cctype>
#include <csignal>
#include <filesystem>
#include <sstream>

#include "kernels/pack/cpu/driver.h"
#include "kernels/pack/device.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "src/base/signals.h"
#include "src/base/terminal.h"
#include "src/cli/commands.h"
#include "src/cli/help.h"

using namespace mxfp4;
using namespace mxfp4::cli;

namespace {

int report(const Error& e, bool json) {
  if (json) {
    print_out("{}\n", one_line({{"error", json_of(e)}}));
  } else {
    for (const std::string& line : e.lines) complain(line);
  }
  if (e.kind == ErrorKind::interrupted) return 128 + (pending_signal() ? pending_signal() : SIGINT);
  return 2;
}

/// "help convert" is "convert --help".
void move_help(std::vector<std::string>& words) {
  if (words.empty() || words.front() != "help") return;
  while (!words.empty() && words.front() == "help") words.erase(words.begin());
  words.push_back("--help");
}

/// Words after "--" are names, even if they begin with "-". "./" is put before such names, so that messages show names
/// that can be copied.
void end_options(std::vector<std::string>& words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  if (end == words.end()) return;
  for (auto name = end + 1; name != words.end(); ++name)
    if (name->starts_with("-")) name->insert(0, "./");
  words.erase(end);
}

/// Throws Error{usage} for words that CLI11 would read as no value, or as several options.
void check_arguments(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& a = words[i];
    if (a.empty() || (a.starts_with("--") && a.ends_with("=")))
      fail(ErrorKind::usage, "argument {}{} is empty, a value was expected; is a variable of the shell not set?", i + 1,
           a.empty() ? "" : fmt::format(" ({})", a));
    if (a.size() > 1 && a[0] == '-' && std::isalpha(static_cast<unsigned char>(a[1])) &&
        a.find_first_not_of("hqvV", 1) != a.npos)
      fail(ErrorKind::usage, "{}: no option; of one letter there are -h, -q, -v and -V, and a name is written ./{}", a,
           a);
  }
}

/// Variables are for the options of the command that was chosen: CLI11 2.1 reads those of all.
void forget_variables_of_others(CLI::App& app, const std::string& chosen) {
  for (CLI::App* command : app.get_subcommands([&](const CLI::App* c) { return c->get_name() != chosen; }))
    for (CLI::Option* option : command->get_options()) option->envname("");
}

/// Prints the text of --help or --version.
int show_help(const CLI::App& app, const CLI::ParseError& e) {
  const std::vector<std::string> others = app.remaining();
  const bool of_command = !others.empty() && !others.front().starts_with('-');
  if (of_command && app.get_subcommands().empty()) throw usage_error(app, e);  // the help of an unknown command
  std::ostringstream text;
  const int code = app.exit(e, text, text);
  write_output(text.str());
  return code;
}

/// The version and the features of this build: the CPU's drivers, the driver that is used here, CUDA and the GPUs.
std::string parts(bool json) {
  std::vector<std::string> names;
  for (const Driver* driver : drivers()) names.push_back(driver->name);
  const std::string here = chosen_driver().name, cuda = cuda_description(), architectures = MXFP4_ARCHITECTURES;
  if (json)
    return one_line({{"version", MXFP4_VERSION},
                     {"drivers", names},
                     {"driver", here},
                     {"cuda", cuda},
                     {"cuda_code", architectures}});
  return fitted(fmt::format("mxfp4-pack " MXFP4_VERSION "\nCPU drivers {}; here {}\n{}{}", fmt::join(names, ", "), here,
                            cuda, architectures.empty() ? "" : "\nCUDA code for " + architectures),
                0);
}

/// Prints the lists of options for mxfp4-pack(1): man/options.py puts them into the page.
void add_manual_lists(CLI::App& app) {
  const auto print = [&app] {
    write_output(manual_lists(app));
    throw CLI::Success();
  };
  app.add_flag_callback("--manual-lists", print)->group("");
}

void describe(CLI::App& app, bool json) {
  app.description(
      "Packs the experts of MXFP4 mixture-of-experts checkpoints once, offline, into the bytes that an inference "
      "engine would compute at every start, and verifies them.");
  app.footer(
      "mxfp4-pack convert gpt-oss-20b/ out/ --backend auto --engine vllm --gpu h100\n"
      "mxfp4-pack verify out/ --source gpt-oss-20b/");
  app.require_subcommand(1);
  app.formatter_fn([](const CLI::App* a, const std::string& name, CLI::AppFormatMode) { return help_of(a, name); });
  app.set_help_flag("-h,--help", "Print help; 'mxfp4-pack help COMMAND' has a command's options");
  app.set_version_flag(
      "-V,--version", [json] { return parts(json); }, "Print the version and what this build can use");
}

void parse(CLI::App& app, std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // the order that CLI11 expects
  try {
    app.parse(words);
  } catch (const CLI::RequiredError&) {  // of an option whose variable has a wrong value
    check_environment(app);
    throw;
  }
  check_environment(app);
}

int run_command(std::vector<std::string> words, bool json) {
  Common common;
  Run run;
  CLI::App app("", "mxfp4-pack");
  try {
    end_with_parent();
    describe(app, json);
    for (Add* add : commands) add(app, common, run);
    add_manual_lists(app);
    check_arguments(words);
    move_help(words);
    forget_variables_of_others(app, words.empty() ? "" : words.front());
    for (const CLI::App* chosen :
         app.get_subcommands([&](const CLI::App* c) { return !words.empty() && c->get_name() == words.front(); }))
      check_values(*chosen, words);
    try {
      parse(app, words);
    } catch (const CLI::ParseError& e) {
      if (e.get_exit_code() == 0) return show_help(app, e);
      throw usage_error(app, e);
    }
    set_verbosity(common.quiet ? Verbosity::quiet : common.verbose ? Verbosity::verbose : Verbosity::normal);
    return run();
  } catch (...) {
    const auto chosen = app.get_subcommands();
    return report(chosen.empty() ? caught() : naming_variables(caught(), *chosen.back()), json);
  }
}

int run_program(std::vector<std::string> words, bool json) {
  end_options(words);
  prepare_process(json);
  install_signal_handlers(json);
  const int code = run_command(std::move(words), json);
  return flush_output() || code > 2 ? code : 2;
}

}  // namespace

int main(int argc, char** argv) {
  char** const end = std::find(argv, argv + argc, std::string_view("--"));
  const bool json = std::find(argv, end, std::string_view("--json")) != end;
  try {
    return run_program({argv + std::min(argc, 1), argv + argc}, json);
  } catch (const std::bad_alloc&) {
    say_out_of_memory(json);
    return 2;
  }
}
