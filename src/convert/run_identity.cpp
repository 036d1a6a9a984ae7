#include "src/convert/run_identity.h"

#include <filesystem>
#include <set>

#include "src/base/folder.h"
#include "src/checkpoint/companion.h"
#include "src/convert/destination.h"
#include "src/io/source_folder.h"
#include "src/packed/companions.h"
#include "src/packed/source_headers.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

/// A checksum of the recipe and the plan. --allow-incomplete lets a run continue that stopped at damaged contents.
std::string given_to(const Plan& plan, const ConvertOptions& options) {
  Recipe recipe = recipe_of(options, plan);
  recipe.layout.clear();  // a path, and the text is there
  recipe.allow_incomplete = options.is_incomplete;
  std::string given = fmt::format("{} {} {}\n", MXFP4_VERSION, format_version, to_json(recipe).dump());
  for (const OutFile& f : plan.files) given += fmt::format("{} {} {}\n", f.name, f.bytes, checksum_of(f.header));
  for (const Job& job : plan.jobs)
    if (const auto* pack = std::get_if<PackJob>(&job))
      given += fmt::format("{} {} {}\n", pack->target, pack->begin, pack->end);
    else
      given += fmt::format("-1 {} {}\n", std::get<CopyJob>(job).begin, std::get<CopyJob>(job).end);
  return checksum_of(given);
}

}  // namespace

OpenOptions open_options_of(const Plan& plan, const ConvertOptions& options, const Input& in) {
  const bool is_linked_later = is_own_source(options, *in.place);
  std::set<std::string> linked;  // excluded: a hard link changes a file's ctime
  for (const OutFile& f : plan.files)
    if (f.shard) linked.insert(f.name);
  std::set<std::string> files;
  const SourceFolder& from = *in.files.folder;
  for (const Entry& entry : entries_below(from.folder(), Unreadable::skip))
    if (struct stat s; entry.path.extension() == ".safetensors" && ::stat(from.path(entry.name).c_str(), &s) == 0) {
      const FileState state = state_of(s);
      files.insert(fmt::format("{} {} {} {}", entry.name, state.bytes, state.mtime_ns, state.inode));
      if (!is_linked_later && !linked.count(entry.name))
        files.insert(fmt::format("{} changed {}.{}", entry.name, s.st_ctim.tv_sec, s.st_ctim.tv_nsec));
    }
  const Checkpoint& ck = *plan.checkpoint;
  const std::string source = fmt::format("{} {} {} {}", fmt::join(files, "\n"), checksum_of(ck.config_text),
                                         to_hex(ck.index.hash), fmt::join(ck.companions, "\n"));
  return {.existing = options.add     ? Existing::extend
                      : options.force ? Existing::replace
                                      : Existing::refuse,
          .options = given_to(plan, options),
          .source = checksum_of(source),
          .made = files_made(plan),
          .bytes = plan.file_bytes + bytes_beside(plan),
          .even_in_use = options.merge,
          .discards_other = options.force && !options.merge,
          .source_folder = in.files.folder};
}

JournalHead part_head_of(const Plan& plan, const ConvertOptions& options, const Input& in) {
  const Checkpoint& ck = *plan.checkpoint;
  std::string source =
      fmt::format("{} {} {}\n", source_headers_checksum(ck), checksum_of(ck.config_text), to_hex(ck.index.hash));
  for (const Shard& s : in.files.shards) source += fmt::format("{} {} {}\n", s.name, s.state.bytes, s.state.mtime_ns);
  for (const std::string& name : ck.companions) source += fmt::format("{} {}\n", name, companion_checksum(ck, name));
  if (in.known) source += in.known->own_checksum;
  const char* way = options.add ? "add" : options.force ? "force" : "new";
  return {.options = checksum_of(given_to(plan, options) + way), .source = checksum_of(source)};
}

}  // namespace mxfp4
