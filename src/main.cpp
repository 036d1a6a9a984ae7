// The command line: options to one function per subcommand. The only catch and the only exit code are here.
#include <cctype>
#include <csignal>
#include <filesystem>
#include <sstream>

#include "kernels/pack/device.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "src/base/signals.h"
#include "src/cli/commands.h"

using namespace mxfp4;
using namespace mxfp4::cli;

namespace {

int report(const Error& e, bool json) {
  if (json) {
    const Json j = {{"error", {{"kind", name_of(e.kind)}, {"lines", e.lines}}}};
    print_out("{}\n", one_line(j));
  } else {
    for (const std::string& line : e.lines) complain(line);
  }
  if (e.kind == ErrorKind::interrupted) return pending_signal() == SIGTERM ? 143 : 130;
  return 2;
}

bool asked_for_json(int argc, char** argv) {
  return std::any_of(argv, argv + argc, [](const char* a) { return std::string_view(a) == "--json"; });
}

/// What CLI11 takes for no value at all, or for several options.
void check_arguments(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view a = argv[i];
    if (a.empty() || (a.starts_with("--") && a.ends_with("=")))
      fail(ErrorKind::usage, "argument {}{} is empty, a value was expected; is a variable of the shell not set?", i,
           a.empty() ? "" : fmt::format(" ({})", a));
    if (a.size() > 1 && a[0] == '-' && std::isalpha(a[1]) && a.find_first_not_of("hqv", 1) != a.npos)
      fail(ErrorKind::usage, "{}: no option; of one letter there are -h, -q and -v, and a name is written ./{}", a, a);
  }
}

/// What --help and --version print.
int show_help(const CLI::App& app, const CLI::ParseError& e) {
  std::ostringstream text;
  const int code = app.exit(e, text, text);
  write_output(text.str());
  return code;
}

int carry_out(int argc, char** argv, bool json) {
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
    add_clean(app, common, run);
    check_arguments(argc, argv);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
      if (e.get_exit_code() == 0) return show_help(app, e);
      fail(ErrorKind::usage, "{}; see mxfp4-pack --help", e.what());
    }
    set_verbosity(common.quiet ? Verbosity::quiet : common.verbose ? Verbosity::verbose : Verbosity::normal);
    return run();
  } catch (const Error& e) {
    return report(e, json);
  } catch (const DeviceError& e) {
    return report({ErrorKind::device, e.what()}, json);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::filesystem::filesystem_error& e) {
    const std::string at = e.path1().empty() ? "" : e.path1().string() + ": ";
    return report({ErrorKind::io, at + e.code().message()}, json);
  } catch (const std::exception& e) {
    return report({ErrorKind::io, e.what()}, json);
  }
}

int run_all(int argc, char** argv, bool json) {
  prepare_process(json);
  install_signal_handlers(json);
  const int code = carry_out(argc, argv, json);
  return flush_output() || code > 2 ? code : 2;
}

}  // namespace

int main(int argc, char** argv) {
  const bool json = asked_for_json(argc, argv);
  try {
    return run_all(argc, argv, json);
  } catch (const std::bad_alloc&) {
    say_out_of_memory(json);
    return 2;
  }
}
