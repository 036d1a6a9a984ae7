#include "src/convert/batch.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "kernels/pack/device.h"
#include "src/base/log.h"
#include "src/base/signals.h"

namespace mxfp4 {

namespace {

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

struct Line {
  int number;
  std::string text;
};

std::vector<Line> read_lines(const std::string& filelist) {
  const bool is_stdin = filelist == "-";
  std::ifstream file;  // a pipe, too
  if (!is_stdin) file.open(filelist);
  if (!is_stdin && !file) fail_errno("--filelist " + filelist, "cannot open", errno);
  if (std::filesystem::is_directory(filelist)) fail(ErrorKind::input, "--filelist {}: a folder", filelist);
  std::istream& text = is_stdin ? std::cin : file;
  std::vector<Line> lines;
  std::string line;
  for (int number = 1; std::getline(text, line); ++number) {
    if (number == 1 && line.starts_with(byte_order_mark)) line.erase(0, byte_order_mark.size());
    const size_t first = line.find_first_not_of(" \t\r");
    if (first != line.npos && line[first] != '#') lines.push_back({number, line});
  }
  return lines;
}

/// What became of a line: the result of convert, or {"error": ..}.
Json carry_out(const BatchOptions& options, const Line& line, const ParseLine& parse) {
  const auto failure = [&](const Error& e) {
    for (const std::string& l : e.lines)
      if (!options.json) complain(fmt::format("{}:{}: {}", options.filelist, line.number, l));
    return Json{{"error", json_of(e)}};
  };
  try {
    ConvertOptions o = parse(line.text);
    if (o.dry_run) fail(ErrorKind::usage, "--dry-run is not for lists");
    o.json = options.json;
    return convert(o);
  } catch (const std::bad_alloc&) {
    return failure({ErrorKind::io, "out of memory"});
  } catch (...) {
    const Error e = caught();
    if (e.kind == ErrorKind::interrupted) throw;
    return failure(e);
  }
}

}  // namespace

int convert_all(const BatchOptions& options, const ParseLine& parse) {
  const std::vector<Line> lines = read_lines(options.filelist);
  Json jobs = Json::array();
  size_t failed = 0, unchanged = 0;
  for (const Line& line : lines) {
    throw_if_interrupted();
    Json result = carry_out(options, line, parse);
    result["line"] = line.number;
    failed += result.contains("error");
    unchanged += result.value("unchanged", false);
    jobs.push_back(std::move(result));
    if (failed && options.fail_fast) break;
  }
  const size_t converted = jobs.size() - failed - unchanged;
  if (options.json)
    print_out("{}\n", one_line(Json{{"converted", converted},
                                    {"unchanged", unchanged},
                                    {"failed", failed},
                                    {"not_begun", lines.size() - jobs.size()},
                                    {"jobs", std::move(jobs)}}));
  else
    note(fmt::format("{} converted, {} unchanged, {} failed, {} not begun", converted, unchanged, failed,
                     lines.size() - jobs.size()));
  return failed ? 2 : 0;
}

}  // namespace mxfp4
