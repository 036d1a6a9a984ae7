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

/// The recipe as a run is known by it: --allow-incomplete counts only if something is left out.
Recipe identity_of(const Plan& plan, const ConvertOptions& options) {
  Recipe recipe = recipe_of(options, plan);
  recipe.layout.clear();  // a path, and the text is there
  recipe.model.allow_incomplete = options.is_incomplete;
  return recipe;
}

/// A checksum of the recipe and the plan.
std::string given_to(const Plan& plan, const ConvertOptions& options) {
  std::string given =
      fmt::format("{} {} {}\n", MXFP4_VERSION, format_version, to_json(identity_of(plan, options)).dump());
  for (const OutFile& f : plan.files) given += fmt::format("{} {} {}\n", f.name, f.bytes, checksum_of(f.header));
  for (const Job& job : plan.jobs)
    if (const auto* pack = std::get_if<PackJob>(&job))
      given += fmt::format("{} {} {}\n", pack->target, pack->begin, pack->end);
    else
      given += fmt::format("-1 {} {}\n", std::get<CopyJob>(job).begin, std::get<CopyJob>(job).end);
  return checksum_of(given);
}

/// The state of the shards, of config and index, and the names of the small files. A ctime is left out if links may
/// change it: those that this conversion makes, and those that others make.
Json state_of_source(const Plan& plan, const ConvertOptions& options, const Input& in) {
  const bool is_linked_later = is_own_source(options, *in.place);
  std::set<std::string> linked;
  for (const OutFile& f : plan.files)
    if (f.shard) linked.insert(f.name);
  Json out = Json::object();
  for (const Shard& s : in.files.shards) {
    const bool is_linked = is_linked_later || linked.count(s.name) || s.links != 1;
    out[s.name] = s.version.empty() ? fmt::format("{} {} {} {}", s.state.bytes, s.state.mtime_ns, s.state.inode,
                                                  is_linked ? 0 : s.ctime_ns)
                                    : fmt::format("{} {}", s.state.bytes, s.version);
  }
  const Checkpoint& ck = *plan.checkpoint;
  out[config_name] = checksum_of(ck.config_text);
  out[index_name] = to_hex(ck.index.hash);
  for (const std::string& name : ck.companions) out[name] = "copied";
  return out;
}

}  // namespace

OpenOptions open_options_of(const Plan& plan, const ConvertOptions& options, const Input& in) {
  Json inputs = {{"version", MXFP4_VERSION}, {"add", options.add}};  // shown, not compared
  inputs.update(to_json(identity_of(plan, options)));
  const Json& files = inputs["file"] = state_of_source(plan, options, in);
  const std::string source = checksum_of(one_line(files));
  return {.existing = options.add     ? Existing::extend
                      : options.force ? Existing::replace
                                      : Existing::refuse,
          .options = given_to(plan, options),
          .source = source,
          .inputs = std::move(inputs),
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
  for (const Shard& s : in.files.shards)
    source += fmt::format("{} {} {}\n", s.name, s.state.bytes,
                          s.version.empty() ? std::to_string(s.state.mtime_ns) : s.version);
  for (const std::string& name : ck.companions) source += fmt::format("{} {}\n", name, companion_checksum(ck, name));
  if (in.known) source += in.known->own_checksum;
  const char* way = options.add ? "add" : options.force ? "force" : "new";
  return {.options = checksum_of(given_to(plan, options) + way), .source = checksum_of(source)};
}

}  // namespace mxfp4
