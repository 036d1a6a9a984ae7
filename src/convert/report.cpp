#include "src/convert/report.h"

#include <filesystem>

#include "kernels/pack/cpu/driver.h"
#include "src/base/log.h"
#include "src/base/terminal.h"
#include "src/base/threads.h"
#include "src/convert/conversion.h"
#include "src/convert/destination.h"
#include "src/convert/published_source.h"
#include "src/packed/companions.h"
#include "src/plan/print_plan.h"
#include "src/plan/rewrite.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

/// The nearest existing directory above OUT.
fs::path folder_above(const std::string& out) {
  fs::path place = fs::absolute(out).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();
  do place = place.parent_path();
  while (!fs::exists(place) && place.has_relative_path());
  return place;
}

/// The options with which verify compares OUT with its checkpoint, if a folder has that.
std::string source_of_verify(const ConvertOptions& o, const Input& in) {
  if (has_manifest(o.checkpoint) || in.files.remote) return {};
  return " --source " + shell_word(o.checkpoint) + (o.links == Links::follow ? " --follow-links" : "");
}

}  // namespace

void note_choices(const ConvertOptions& options, const Plan& plan, const DeviceChoice& devices) {
  const Backend& b = *plan.backend;
  note_detail(fmt::format("backend {} of {}, layout version {}{}: {}", b.name, b.engine, b.layout_version,
                          options.layout_version.empty() ? ", the first that fits" : "", b.summary));
  note_detail(fmt::format("device: {}, {}; driver {}; {}; {} of at most {}", name_of(devices), devices.why,
                          chosen_driver().name, counted(worker_count(options.threads), "thread"),
                          counted(plan.jobs.size(), "step"), human_bytes(plan.job_bytes)));
  note_tensors(plan);
}

void show_plan(const ConvertOptions& options, const Plan& plan) {
  const fs::path place = folder_above(options.out);
  const PlanCost cost{.threads = worker_count(options.threads, int64_t(plan.jobs.size())),
                      .free = int64_t(fs::space(place).available)};
  const int64_t needed = plan.file_bytes + bytes_beside(plan);
  const bool fits = needed <= cost.free;
  if (fits || !options.json) print_plan(plan, cost, options.json);
  if (!options.json) print_out("{}\n", fitted("contents: not read; convert looks for zeros, NaN and infinity"));
  if (!fits) fail(ErrorKind::io, "{}: {} needed, {} free", options.out, human_bytes(needed), human_bytes(cost.free));
}

Json report(const ConvertOptions& options, const Input& in, const PublishedList& compared, const Plan& plan,
            const DeviceChoice& devices, const Conversion& conversion) {
  report_files(in.checkpoint, compared);
  if (conversion.zero_scales())
    note(fmt::format(
        "0x00 (2^-127) in {}, which needs no action: some kernels, such as Marlin's and Hopper's, read it as 0.0",
        counted(conversion.zero_scales(), "scale")));
  if (plan.backend->rewrite) note(describe_loss(conversion.loss()));
  const Json seconds = conversion.seconds();
  std::string times;
  for (const auto& [stage, time] : seconds.items()) times += fmt::format(", {} {}", stage, human_seconds(time));
  note_detail("time of each stage, all threads together:" + times.substr(1));
  if (!options.json) note_result(plan, source_of_verify(options, in), options.out, seconds["wall"]);
  Json result = result_of(plan, options.out, conversion.zero_scales());
  result["seconds"] = seconds;
  result["device"] = {{"name", name_of(devices)}, {"why", devices.why}};
  if (const auto w = conversion.write_way()) result["writes"] = {{"way", w->way}, {"why", w->why}};
  if (!compared.empty()) result["published"] = compared.size();
  return result;
}

}  // namespace mxfp4
