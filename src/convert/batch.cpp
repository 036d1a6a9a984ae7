#include "src/convert/batch.h"

#include <sstream>

#include "kernels/pack/device.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/stream.h"

namespace mxfp4 {

namespace {

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
constexpr int64_t max_list_bytes = int64_t(1) << 30;

struct Line {
  int number;
  std::string text;
};

/// Reads all lines before the first conversion begins. If the list cannot be read, nothing is converted.
std::vector<Line> read_lines(const std::string& filelist) {
  const Fd file = open_stream(filelist, "--filelist " + filelist);
  if (S_ISDIR(file.stat().st_mode)) fail(ErrorKind::input, "{}: a folder", file.name());
  std::istringstream text(read_to_end(file, max_list_bytes));
  std::vector<Line> lines;
  std::string line;
  for (int number = 1; std::getline(text, line); ++number) {
    if (number == 1 && line.starts_with(byte_order_mark)) line.erase(0, byte_order_mark.size());
    const size_t first = line.find_first_not_of(" \t\r");
    if (first != line.npos && line[first] != '#') lines.push_back({number, line});
  }
  return lines;
}

/// The result of a line: that of convert, or {"error": .., "checkpoint"?, "out"?}.
Json carry_out(const BatchOptions& options, const Line& line, const ParseLine& parse) {
  ConvertOptions o;
  const auto failure = [&](const Error& e) {
    for (const std::string& l : e.lines)
      if (!options.json) complain(fmt::format("{}:{}: {}", options.filelist, line.number, l));
    Json result = {{"error", json_of(e)}};
    if (!o.out.empty()) result.update({{"checkpoint", o.checkpoint}, {"out", o.out}});
    return result;
  };
  try {
    throw_if_interrupted();
    o = parse(line.text);
    if (o.dry_run) fail(ErrorKind::usage, "--dry-run is not for lists");
    o.json = options.json;
    return convert(o);
  } catch (const std::bad_alloc&) {
    return failure({ErrorKind::io, "out of memory"});
  } catch (...) {
    return failure(caught());
  }
}

}  // namespace

namespace {

/// The path of a line's OUT. Empty if the line cannot be parsed; the line's own run reports the error.
std::filesystem::path place_of_line(const Line& line, const ParseLine& parse) try {
  const ConvertOptions o = parse(line.text);
  if (o.add || o.part) return {};  // several lines may share an OUT
  return std::filesystem::weakly_canonical(std::filesystem::absolute(o.out));
} catch (const std::exception&) {
  return {};
}

/// Refuses two lines with the same OUT, or with an OUT inside another: the second run would replace the first output.
void check_places(const BatchOptions& options, const std::vector<Line>& lines, const ParseLine& parse) {
  std::map<std::filesystem::path, int> places;
  for (const Line& line : lines) {
    std::filesystem::path place = place_of_line(line, parse);
    if (place.empty()) continue;
    if (!place.has_filename()) place = place.parent_path();
    for (const auto& [other, number] : places)
      if (is_below(place, other) || is_below(other, place))
        fail(ErrorKind::usage, "--filelist {}: lines {} and {} write to {}{}; give each an OUT of its own, or --add",
             options.filelist, number, line.number, place.string(), place == other ? "" : " and " + other.string());
    places.emplace(place, line.number);
  }
}

}  // namespace

int convert_all(const BatchOptions& options, const ParseLine& parse) {
  const std::vector<Line> lines = read_lines(options.filelist);
  if (lines.empty())
    fail(ErrorKind::input, "--filelist {}: no conversion in it; write one a line: CKPT OUT and options",
         options.filelist);
  check_places(options, lines, parse);
  const SignalsDeferred deferred;  // an interrupted list prints the results of its finished lines
  Json jobs = Json::array();
  size_t failed = 0, unchanged = 0;
  for (const Line& line : lines) {
    if (pending_signal()) break;
    Json result = carry_out(options, line, parse);
    result["line"] = line.number;
    failed += result.contains("error");
    unchanged += result.value("unchanged", false);
    jobs.push_back(std::move(result));
  }
  const size_t converted = jobs.size() - failed - unchanged;
  if (options.json)
    print_out("{}\n",
              one_line(Json{
                  {"converted", converted}, {"unchanged", unchanged}, {"failed", failed}, {"jobs", std::move(jobs)}}));
  else
    note(fmt::format("{} converted, {} unchanged, {} failed", converted, unchanged, failed));
  if (const int signal = pending_signal()) return 128 + signal;
  return failed ? 2 : 0;
}

}  // namespace mxfp4
