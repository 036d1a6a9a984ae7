#include "src/verify/verdict.h"

#include "src/base/log.h"
#include "src/base/terminal.h"
#include "src/packed/packed_checkpoint.h"

namespace mxfp4 {

namespace {

const char* name_of(Level level) {
  return level == Level::files ? "files" : level == Level::bytes ? "bytes" : "kernels";
}

void print_json(const VerifyOptions& options, const PackedCheckpoint& p, const Verdict& v) {
  Json sets = Json::array();
  for (size_t i = 0; i < p.sets.size(); ++i) {
    const Plan& plan = p.sets[i].plan;
    sets.push_back({{"engine", plan.backend->engine},
                    {"backend", plan.backend->name},
                    {"layout_version", plan.backend->layout_version},
                    {"moe_tp_size", plan.tp_size},
                    {"level", name_of(v.levels[i])}});
    if (v.kernels.count(i)) sets.back()["kernels"] = to_json(v.kernels.at(i));
  }
  Json j = {{"ok", !v.problems.any()},
            {"out", options.out},
            {"level", name_of(v.level())},
            {"sets", sets},
            {"problems", v.problems.errors()}};
  if (options.part.count > 1) {
    j["part"] = options.part.index;
    j["parts"] = options.part.count;
  }
  if (!v.incomplete.empty()) j["incomplete"] = v.incomplete;
  if (v.published) j["published"] = to_json(*v.published);
  print_out("{}\n", one_line(j));
}

std::string name_of(const VerifyOptions& o) {
  const std::string out = printable(o.out);
  return o.part.count > 1 ? fmt::format("{}: part {} of {}", out, o.part.index, o.part.count) : out;
}

/// The ending for a set of a layout file: its backend may have the name of a built-in backend.
std::string of_layout_file(const ManifestSet& set) {
  if (set.layout_file.empty()) return {};
  return fmt::format("; its layout is that of the layout file that convert was given, {}", set.layout_version);
}

void print_text(const VerifyOptions& options, const PackedCheckpoint& p, const Verdict& v) {
  const auto& lines = v.problems.errors();
  const auto& sets = p.manifest.sets;
  const bool speaks = verbosity() != Verbosity::quiet;
  if (!lines.empty() || speaks)
    for (const auto& [i, report] : v.kernels)
      if (!report.checks.empty()) print_out("{}", to_text(report, sets.size() > 1 ? describe(sets[i]) + ": " : ""));
  const auto say = [](const std::string& line) { print_out("{}\n", fitted(line)); };
  for (const std::string& line : lines) say(line);
  if (!lines.empty())
    say(fmt::format("{}: {}: {} at level {}", name_of(options), toned(Tone::bad, "wrong"),
                    counted(v.problems.count(), "problem"), name_of(v.level())));
  if (!lines.empty() || !speaks) return;
  size_t tensors = 0;
  for (size_t i = 0; i < sets.size(); ++i) {
    tensors += p.sets[i].plan.packed.size();
    if (sets.size() > 1)
      say(fmt::format("{}: {}: {} at level {}{}", name_of(options), describe(sets[i]), toned(Tone::good, "right"),
                      name_of(v.levels[i]), of_layout_file(sets[i])));
  }
  if (options.part.count > 1)
    return say(fmt::format("{}: {} at level {} (in {})", name_of(options), toned(Tone::good, "right"),
                           name_of(v.level()), human_seconds(v.seconds)));
  const std::string lacks =
      v.incomplete.empty() ? "" : fmt::format("; the checkpoint is incomplete: {}", v.incomplete.front());
  int64_t bytes = 0;
  for (const ListedFile& f : p.manifest.files) bytes += f.bytes;
  say(fmt::format("{}: {} at level {} ({} packed and {}, {} in {}){}{}", name_of(options), toned(Tone::good, "right"),
                  name_of(v.level()), tensors, counted(p.copied.size(), "copied tensor"), human_bytes(bytes),
                  human_seconds(v.seconds), sets.size() == 1 ? of_layout_file(sets.front()) : "", lacks));
  if (v.published)
    for (const std::string& line : lines_of(*v.published)) say(fmt::format("{}: {}", name_of(options), line));
}

}  // namespace

void print(const VerifyOptions& options, const PackedCheckpoint& p, const Verdict& v) {
  options.json ? print_json(options, p, v) : print_text(options, p, v);
}

}  // namespace mxfp4
