#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/terminal.h"
#include "src/cli/commands.h"
#include "src/io/output.h"
#include "src/packed/file_checks.h"
#include "src/packed/manifest.h"

namespace mxfp4::cli {

namespace {

namespace fs = std::filesystem;

struct CleanOptions {
  std::string dir;
  bool remove = false, even_in_use = false;
};

std::string describe(const Leftover& l) {
  switch (l.kind) {
    case LeftoverKind::resumable:
      return fmt::format("a partial output, {} finished steps; convert --resume goes on with it", l.jobs);
    case LeftoverKind::begun:
      return "the beginning of an output, no finished step";
    case LeftoverKind::replaced:
      return "what the finished output replaced";
    case LeftoverKind::predecessor:
      return "the old output, whose place is empty; it is put back, not removed";
    case LeftoverKind::other_version:
      return "a partial output of another version";
    case LeftoverKind::orphan:
      return "a partial output without its journal";
    case LeftoverKind::output:
      return "a whole output, which no journal speaks of";
    case LeftoverKind::parts:
      return "parts of an output; merge puts them together";
    case LeftoverKind::removed:
      return "the rest of what clean took from a run";
    case LeftoverKind::strange:
      return fmt::format("not mxfp4-pack's: {}; it stays", l.why);
  }
  return {};
}

std::string describe(Leftover::Use use) {
  if (use == Leftover::Use::locked) return "; a run is writing it";
  if (use == Leftover::Use::unknown) return "; a run may be writing it: no lock says, and it has just changed";
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

/// What was done, as one word.
std::string clean_up(const Folder& dir, const Leftover& l, const CleanOptions& o) {
  if (!o.remove || l.kind == LeftoverKind::strange) return "kept";
  if (l.use != Leftover::Use::none && !o.even_in_use) return "kept";
  const bool is_done = l.kind == LeftoverKind::replaced;
  if (is_done && l.use == Leftover::Use::locked) return "kept";  // its run is removing it
  if (::faccessat(dir.fd(), ".", W_OK, 0) != 0) fail_errno(dir.path(), "cannot remove anything in it", errno);
  if (o.even_in_use && !is_done) take_from_run(dir, l.place, owned_files);  // a run may have begun by now
  OutputDir::clean({dir.again(), l.place}, owned_files);
  return l.kind == LeftoverKind::predecessor ? "put back" : "removed";
}

std::vector<std::string> paths_of(const Folder& dir, const Leftover& l) {
  std::vector<std::string> paths;
  for (const std::string& name : l.names) paths.push_back(dir.path(name));
  return paths;
}

Json to_json(const Folder& dir, const Leftover& l, const std::string& done) {
  Json j = {{"out", dir.path(l.place)},
            {"kind", name_of(l.kind)},
            {"paths", paths_of(dir, l)},
            {"bytes", l.bytes},
            {"age_seconds", l.age},
            {"finished_jobs", l.jobs},
            {"done", done},
            {"in_use", name_of(l.use)}};
  if (!l.why.empty()) j["reason"] = l.why;
  return j;
}

/// As convert --force, clean removes no output with a small file that somebody edited; nor one that was whole, and
/// lacks files now.
Leftover unless_edited(const Folder& dir, Leftover l) {
  if (l.kind != LeftoverKind::output && l.kind != LeftoverKind::orphan) return l;
  for (const std::string& hidden : l.names) {
    const Folder folder = dir.find(hidden);
    const bool was_whole = folder && folder.has(manifest_name) && !folder.has(run_file);
    const std::string name = was_whole ? edited_file(folder, read_listed_files(folder)) : "";
    if (name.empty()) continue;
    l.kind = LeftoverKind::strange;
    l.why = name + " was changed since it was written";
  }
  return l;
}

int clean(const CleanOptions& o, bool json) {
  std::error_code ec;
  const std::string path = fs::canonical(o.dir, ec).string();
  if (ec) fail_errno(o.dir, "cannot read", ec.value());
  const Folder dir = Folder::open(path);
  Json list = Json::array();
  int64_t removable = 0;
  for (const Leftover& found : find_leftovers(dir, owned_files)) {
    throw_if_interrupted();
    const Leftover l = unless_edited(dir, found);
    const std::string done = clean_up(dir, l, o);
    list.push_back(to_json(dir, l, done));
    removable += !o.remove && l.kind != LeftoverKind::strange && l.use == Leftover::Use::none;
    if (json) continue;
    const std::string what =
        fmt::format("{}{}: {}, {}, changed {} ago{}", o.remove ? done + ": " : "", printable(dir.path(l.place)),
                    printable(describe(l)), human_bytes(l.bytes), human_age(l.age), describe(l.use));
    print_out("{}\n", fitted(what));
    if (verbosity() == Verbosity::verbose)
      for (const std::string& path : paths_of(dir, l)) print_out("  {}\n", printable(path));
  }
  if (json) print_out("{}\n", one_line(Json{{"dir", path}, {"leftovers", list}}));
  if (list.empty()) note(fmt::format("{}: nothing is left of interrupted runs", o.dir));
  if (removable > 0) note("nothing was removed; --remove does it");
  return 0;
}

}  // namespace

void add_clean(CLI::App& root, Common& common, Run& run) {
  auto* app = root.add_subcommand("clean", "List, or remove, what interrupted runs left in a folder");
  static CleanOptions o;
  app->description(
      "List, or remove, what interrupted runs left in a folder\n\n"
      "Lists partial outputs and journals beside the outputs in DIR: what each is, its size and age, and whether a run "
      "is writing it.");
  app->footer("mxfp4-pack clean models/\nmxfp4-pack clean models/ --remove");
  app->add_option("DIR", o.dir, "Folder in which outputs are made")->required()->type_name("");
  auto* remove = app->add_flag("--remove", o.remove, "Remove what is listed, but what a run may still be writing");
  app->add_flag("--even-in-use", o.even_in_use, "Remove also what a run may be writing; that run then fails")
      ->needs(remove);
  add_common(app, common);
  app->callback([&] { run = [&] { return clean(o, common.json); }; });
}

}  // namespace mxfp4::cli
