#include <algorithm>
#include <cctype>

#include "src/base/log.h"
#include "src/cli/commands.h"
#include "src/cli/convert_options.h"
#include "src/cli/help.h"
#include "src/cli/part_option.h"
#include "src/convert/batch.h"

namespace mxfp4::cli {

namespace {

/// Splits a line into words. Quotes keep spaces in a word. A # that begins a word begins a comment. No other character
/// has a special meaning; backslashes are refused.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  char open = '\0';  // the quote that is still open
  bool in_word = false;
  for (const char c : line) {
    const bool is_quote = open ? c == open : c == '"' || c == '\'',
               is_space = !open && std::isspace(static_cast<unsigned char>(c));
    if (c == '#' && !in_word) break;
    if (c == '\0')
      fail(ErrorKind::usage, "a byte 0, which is in no name; is the list in UTF-16, or are its lines ended by zeros?");
    if (c == '\\' && !open) fail(ErrorKind::usage, "a backslash, which escapes nothing here; put the name in quotes");
    if (!in_word && !is_space) words.emplace_back();
    in_word = !is_space;
    if (is_quote) open = open ? '\0' : c;
    if (in_word && !is_quote) words.back() += c;
  }
  if (open) fail(ErrorKind::usage, "a quote {} that is not closed", open);
  if (std::count(words.begin(), words.end(), "")) fail(ErrorKind::usage, "a name in quotes that is empty");
  return words;
}

/// Parses a line of a list. `defaults` are the values of the command line.
ConvertOptions parse_conversion(const std::string& line, const Conversion& defaults) {
  std::vector<std::string> words = words_of(line);
  CLI::App app;
  app.set_help_flag();
  Conversion o = defaults;
  const auto needed = add_conversion(&app, o);
  needed.backend->required(defaults.options.backend.empty());
  needed.engine->required(defaults.options.engine.empty());
  try {
    std::reverse(words.begin(), words.end());  // the order that CLI11 expects
    app.parse(words);
  } catch (const CLI::ParseError& e) {
    throw with_advice(usage_problems(app, e), "a line is CKPT OUT and options, as for convert");
  }
  try {
    return o.settled();
  } catch (const Error& e) {
    throw naming_variables(e, app);
  }
}

}  // namespace

void add_convert(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("convert", "Pack a checkpoint's experts for an engine");
  static Conversion o;
  static BatchOptions batch;
  app->description(
      "Pack a checkpoint's experts for an engine\n\n"
      "Writes OUT: the checkpoint with its experts packed for one backend of one engine. The same command continues an "
      "interrupted run, and changes nothing if OUT is complete.");
  app->footer(
      "mxfp4-pack convert gpt-oss-20b/ out/ --backend auto --engine vllm --gpu h100\n"
      "mxfp4-pack convert gpt-oss-120b/ out/ --backend marlin --engine vllm --tp-size 2 --dry-run\n"
      "mxfp4-pack convert gpt-oss-20b/ out/ --backend marlin --engine vllm --part 0/2    # 1/2 elsewhere, then merge");
  const auto needed = add_conversion(app, o);
  const auto take_list = [needed](const std::string& name) {
    batch.filelist = name;
    for (CLI::Option* option : {needed.checkpoint, needed.out, needed.backend, needed.engine}) option->required(false);
  };
  static PartOptions part;
  add_part(app, part, {"--dry-run", "--published"});
  app->option_defaults()->group("Many conversions");
  auto* list = add_call<std::string>(
      app,
      {.name = "--filelist",
       .value = "FILE",
       .help = "Convert each line of FILE, or of stdin for -: CKPT OUT and options; # begins a comment",
       .manual = R"(Convert each line of
.Ar FILE ,
or of standard input for
.Ql - .
A line has
.Ar CKPT OUT
and options; those of the command line apply to every line.
Quotes enclose names with spaces, and
.Ql #
begins a comment.
A failed conversion does not stop the others.
The exit status is the highest of all.
A list without conversions is an error.)"},
      take_list);
  list->excludes(needed.checkpoint)->excludes(needed.out)->excludes(app->get_option("--part"));
  add_common(app, common);
  app->callback([&] {
    run = [&] {
      o.options.json = batch.json = common.json;
      if (!batch.filelist.empty())
        return convert_all(batch, [&](const std::string& line) { return parse_conversion(line, o); });
      ConvertOptions settled = o.settled();
      settled.part = part.number();
      Json result = convert(settled);
      if (part.merge)
        result["merged"] = merge_if_whole(
            {.out = settled.out, .threads = settled.threads, .device = settled.device, .json = common.json});
      if (common.json && !o.options.dry_run) print_out("{}\n", one_line(result));
      return 0;
    };
  });
}

}  // namespace mxfp4::cli
