#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "src/base/log.h"
#include "src/base/new_file.h"
#include "src/base/signals.h"
#include "src/base/terminal.h"
#include "src/cli/commands.h"
#include "src/io/leftover.h"
#include "src/io/output.h"
#include "src/packed/file_checks.h"
#include "src/packed/manifest.h"

namespace mxfp4::cli {

namespace {

namespace fs = std::filesystem;

struct CleanOptions {
  std::string path;
  bool remove = false;
};

std::string describe(const Leftover& l) {
  switch (l.kind) {
    case LeftoverKind::resumable:
      return "a partial output, " + counted(l.jobs, "finished step");
    case LeftoverKind::begun:
      return "the beginning of an output, no finished step";
    case LeftoverKind::replaced:
      return "the old output, which the finished output replaced";
    case LeftoverKind::predecessor:
      return "the old output, whose place is empty";
    case LeftoverKind::other_version:
      return "a partial output of another version";
    case LeftoverKind::parts:
      return "parts of an output";
    case LeftoverKind::strange:
      return fmt::format("no leftover of this user: {}; it stays", l.why);
  }
  return {};
}

/// The command that can use a leftover which stays.
std::string describe_use(LeftoverKind kind) {
  if (kind == LeftoverKind::resumable)
    return "; the same convert command of this version continues it if the source is unchanged";
  if (kind == LeftoverKind::predecessor) return "; --remove puts it back";
  return kind == LeftoverKind::parts ? "; merge joins them" : "";
}

std::string describe(Leftover::Use use) {
  if (use == Leftover::Use::locked) return "; a run is writing it";
  if (use == Leftover::Use::unknown)
    return "; a run may be writing it: it changed less than 10 minutes ago, and there is no lock";
  return {};
}

const char* name_of(Leftover::Use use) {
  return use == Leftover::Use::locked ? "yes" : use == Leftover::Use::none ? "no" : "unknown";
}

/// "42 s", "3 h": the largest unit that fits.
std::string human_age(int64_t seconds) {
  if (seconds >= 48 * 3600) return fmt::format("{} days", seconds / 86400);
  if (seconds >= 2 * 3600) return fmt::format("{} h", seconds / 3600);
  return seconds >= 120 ? fmt::format("{} min", seconds / 60) : fmt::format("{} s", seconds);
}

/// Whether --remove removes the leftover or restores it.
bool is_removable(const Leftover& l) { return l.kind != LeftoverKind::strange && l.use == Leftover::Use::none; }

/// Removes or restores a leftover if --remove is given. Returns one word for the action.
std::string clean_up(const Folder& dir, const Leftover& l, const CleanOptions& o) {
  if (!o.remove || !is_removable(l)) return "kept";
  if (::faccessat(dir.fd(), ".", W_OK, 0) != 0) fail_errno(dir.path(), "cannot remove anything in it", errno);
  OutputDir::clean({dir.again(), l.place}, owned_files);
  return l.kind == LeftoverKind::predecessor ? "put back" : "removed";
}

Json to_json(const Folder& dir, const Leftover& l, const std::string& done) {
  Json j = {{"out", dir.path(l.place)},
            {"kind", name_of(l.kind)},
            {"path", dir.path(l.name)},
            {"bytes", l.bytes},
            {"age_seconds", l.age},
            {"finished_jobs", l.jobs},
            {"done", done},
            {"in_use", name_of(l.use)}};
  if (!l.why.empty()) j["reason"] = l.why;
  return j;
}

/// A folder and the leftovers in it: those beside one output, or all.
struct Leftovers {
  Folder dir;
  std::vector<Leftover> list;
};

/// Leftovers beside the output `path`, or, if there are none, all leftovers in the folder `path`.
Leftovers find_at(const std::string& path) {
  if (LastStep out = last_step(path); out.above && !out.name.empty()) {
    auto beside = find_leftovers(out.above, out.name);
    if (!beside.empty() || !out.above.has(out.name)) return {std::move(out.above), std::move(beside)};
  }
  refuse_link(path);  // it may be an OUT, in whose place another user put the link
  std::error_code ec;
  const fs::path folder = fs::canonical(path, ec);
  if (ec) fail_errno(path, "cannot read", ec.value());
  Folder dir = Folder::open(folder.string());
  auto all = find_leftovers(dir);
  return {std::move(dir), std::move(all)};
}

int clean(const CleanOptions& o, bool json) {
  const auto [dir, leftovers] = find_at(o.path);
  Json list = Json::array();
  int64_t removable = 0;
  for (const Leftover& l : leftovers) {
    throw_if_interrupted();
    const std::string done = clean_up(dir, l, o);
    list.push_back(to_json(dir, l, done));
    removable += !o.remove && is_removable(l);
    if (json) continue;
    const std::string what =
        fmt::format("{}{}: {}{}, {}, changed {} ago{}", o.remove ? done + ": " : "", printable(dir.path(l.place)),
                    printable(describe(l)), done == "kept" ? describe_use(l.kind) : "", human_bytes(l.bytes),
                    human_age(l.age), describe(l.use));
    print_out("{}\n", fitted(what));
    if (verbosity() == Verbosity::verbose) print_out("  {}\n", printable(dir.path(l.name)));
  }
  if (json) print_out("{}\n", one_line(Json{{"dir", dir.path()}, {"leftovers", list}}));
  if (list.empty()) note(fmt::format("{}: nothing is left of interrupted runs", o.path));
  if (removable > 0) note("nothing was removed; --remove discards these");
  return 0;
}

}  // namespace

void add_clean(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("clean", "List or remove the leftovers of interrupted runs");
  static CleanOptions o;
  app->description(
      "List or remove the leftovers of interrupted runs\n\n"
      "Lists the staging directory beside OUT, or all staging directories in a folder: size, age, and whether a run "
      "may be using them.");
  app->footer("mxfp4-pack clean models/\nmxfp4-pack clean models/gpt-oss-20b-marlin --remove");
  app->add_option("PATH", o.path, "An OUT, or a folder in which outputs are made")->required()->type_name("");
  add(app,
      {.name = "--remove",
       .help = "Remove the leftovers, except those that a run may be using",
       .manual = R"(Remove the leftovers, except those that a run may be using, and restore an old output that
.Fl -force
had renamed.
Links and files of others stay.)"},
      o.remove);
  add_common(app, common, run, [&] { return clean(o, common.json); });
}

}  // namespace mxfp4::cli
