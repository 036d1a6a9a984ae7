#include "src/cli/part_option.h"

#include <cstdlib>
#include <optional>
#include <vector>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/number.h"

namespace mxfp4::cli {

namespace {

constexpr int most_parts = 1 << 20;
constexpr const char* count_name = "MXFP4_PACK_PARTS";
constexpr const char* advice = "use --part I/N";

std::optional<int> number_in(std::string_view text) {
  const int64_t value = whole_number(text);
  if (value < 0 || value > most_parts) return {};
  return int(value);
}

/// The number that one launcher gives.
struct Found {
  std::string variables;  // "A=3, B=8"
  PartNumber part;
};

class Environment {
 public:
  std::optional<int> number(const char* name) const {
    const char* text = std::getenv(name);
    if (!text || !*text) return {};
    const std::optional<int> value = number_in(text);
    if (!value) fail(ErrorKind::usage, "--part auto: {}='{}' is no number from 0 to {}", name, text, most_parts);
    return value;
  }

  /// Adds a launcher's number of this process, and the count of processes.
  void add_pair(const char* index, const char* count) {
    const auto i = number(index), n = number(count);
    if (!i && !n) return;
    if (!i || !n)
      fail(ErrorKind::usage, "--part auto: {}={} is set without {}; {}", i ? index : count, i ? *i : *n,
           i ? count : index, advice);
    add(fmt::format("{}={}, {}={}", index, *i, count, *n), {*i, *n});
  }

  /// Adds the number of a task of srun. Outside of srun a batch script is process 0; without a count of tasks that is
  /// no part number.
  void add_slurm_tasks() {
    if (number("SLURM_PROCID") == 0 && !number("SLURM_NTASKS")) return;
    if (number("SLURM_NTASKS") == 1 && !number("SLURM_PROCID")) return;
    add_pair("SLURM_PROCID", "SLURM_NTASKS");
  }

  /// Adds the number of a task of an array. If MXFP4_PACK_PARTS has the number of all parts, the array may be submitted
  /// in several pieces or as single tasks; else it must be complete.
  void add_slurm_array() {
    const auto id = number("SLURM_ARRAY_TASK_ID"), count = number("SLURM_ARRAY_TASK_COUNT");
    if (!id || number(count_name)) return add_pair("SLURM_ARRAY_TASK_ID", count_name);
    if (!count) return add_pair("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT");
    const int first = number("SLURM_ARRAY_TASK_MIN").value_or(0), step = number("SLURM_ARRAY_TASK_STEP").value_or(1);
    const int last = number("SLURM_ARRAY_TASK_MAX").value_or(first + (*count - 1) * step);
    const std::string said =
        fmt::format("SLURM_ARRAY_TASK_ID={}, _COUNT={}, _MIN={}, _MAX={}, _STEP={}", *id, *count, first, last, step);
    if (*count < 2 || step < 1 || *id < first || (*id - first) % step != 0 || last - first != (*count - 1) * step)
      fail(ErrorKind::usage, "--part auto: {} are no whole array; set {} to the number of all parts, or {}", said,
           count_name, advice);
    add(said, {(*id - first) / step, *count});
  }

  PartNumber agreed() const {
    const std::optional<int> count = number(count_name);
    if (found_.empty())
      fail(ErrorKind::usage,
           "--part auto: no variable of Slurm, Kubernetes (JOB_COMPLETION_INDEX with {}), Open MPI or PMI says which "
           "part of how many{}; {}",
           count_name, count ? fmt::format(" beside {}={}", count_name, *count) : "", advice);
    const Found* said = &found_.front();
    for (const Found& f : found_)
      if (f.part.count > 1) said = &f;
    for (const Found& f : found_)
      if (f.part.count > 1 && f.part != said->part)
        fail(ErrorKind::usage, "--part auto: {} and {} disagree; {}", f.variables, said->variables, advice);
    if (count && said->part.count != *count)
      fail(ErrorKind::usage, "--part auto: {} and {}={} disagree; {}", said->variables, count_name, *count, advice);
    return said->part;
  }

 private:
  void add(const std::string& variables, const PartNumber& part) {
    if (part.index >= part.count) fail(ErrorKind::usage, "--part auto: {}: no such part; {}", variables, advice);
    found_.push_back({variables, part});
  }

  std::vector<Found> found_;
};

PartNumber part_of_environment() {
  Environment environment;
  if (environment.number("SLURM_ARRAY_TASK_ID") || environment.number("SLURM_ARRAY_TASK_COUNT"))
    environment.add_slurm_array();
  if (environment.number("JOB_COMPLETION_INDEX")) environment.add_pair("JOB_COMPLETION_INDEX", count_name);
  environment.add_slurm_tasks();
  environment.add_pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  environment.add_pair("PMI_RANK", "PMI_SIZE");
  return environment.agreed();
}

}  // namespace

PartNumber read_part(const std::string& text) {
  if (text == "auto") return part_of_environment();
  const size_t slash = text.find('/');
  const auto index = number_in(text.substr(0, slash));
  const auto count = slash == text.npos ? std::nullopt : number_in(text.substr(slash + 1));
  if (!index || !count || *index >= *count)
    fail(ErrorKind::usage, "--part {}: I/N was expected, with I from 0 to N - 1, or auto", text);
  return {*index, *count};
}

std::optional<PartNumber> PartOptions::number() const {
  if (text.empty()) return {};
  return read_part(text);
}

void add_part(CLI::App* app, PartOptions& part, std::initializer_list<const char*> others) {
  app->option_defaults()->group("Many nodes");
  auto* option = add_part_number(app, part.text);
  for (const char* other : others) option->excludes(app->get_option(other));
  add(app, {.name = "--merge", .help = "With --part: merge if all parts are there", .manual = R"(With
.Fl -part :
merge if all parts are there.)"},
      part.merge)
      ->needs(option);
}

bool merge_if_whole(const MergeOptions& options) try {
  const Json result = merge(options);
  if (!result.contains("missing")) return true;
  note(fmt::format("{}: not merged yet; missing parts: {}", options.out, std::string(result["array"])));
  return false;
} catch (const Error& e) {
  if (e.kind != ErrorKind::usage) throw;
  for (const std::string& line : e.lines) note(fmt::format("not merged: {}", line));
  return false;
}

}  // namespace mxfp4::cli
