#include "src/convert/unpack_part.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "src/base/elapsed.h"
#include "src/base/log.h"
#include "src/convert/part_run.h"
#include "src/convert/unchanged.h"
#include "src/packed/add_set.h"
#include "src/packed/checksums.h"
#include "src/packed/packed_checkpoint.h"
#include "src/packed/source_headers.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

constexpr const char* unpacked_key = "unpack";
constexpr const char* there_already = "complete already; tensors were not compared";

/// A plan whose files are the source's shards, each with one job, to divide among parts.
Plan plan_of_shards(const PackedCheckpoint& packed) {
  const Checkpoint& source = packed.manifest.source;
  Plan plan;
  for (const Shard& s : source.shards)
    plan.files.push_back({.name = s.name, .header = {}, .bytes = 8 + s.header.bytes});
  for (const Tensor& t : source.tensors) plan.files[size_t(t.file)].bytes += t.bytes;
  for (size_t s = 0; s < plan.files.size(); ++s) {
    plan.copied.push_back({.source = nullptr, .file = int(s)});
    plan.copy_pieces.push_back({.copied = s, .range = {.tensor = nullptr, .offset = 0, .bytes = plan.files[s].bytes}});
    plan.jobs.push_back(CopyJob{s, s + 1});
  }
  return plan;
}

PartRun run_of_parts(const std::string& dest, const Place& place, const PackedCheckpoint& packed, const Plan& plan) {
  JournalHead head{.options = checksum_of(fmt::format("{} {}", unpacked_key, MXFP4_VERSION)),
                   .source = packed.manifest.own_checksum};
  return {dest, place, plan, std::move(head), "unpack to another place, without parts"};
}

bool has_same_form(const Checkpoint& source, const Folder& dest) {
  const std::vector<std::string> names = same_files(source, dest);
  const auto is_missing = [&](const std::string& name) {
    return !dest.has(name) && (name != index_name || source.index.bytes > 0);
  };
  if (names.empty() || std::any_of(names.begin(), names.end(), is_missing)) return false;
  Problems damage;
  const Checkpoint there = open_checkpoint(dest.lasting_path(), damage);
  return !damage.any() && source_headers_checksum(there) == source_headers_checksum(source);
}

/// Whether DEST exists with the small files, headers and sizes that unpack writes. Tensors are not read. Throws
/// Error{usage} if DEST is anything else.
bool is_there_already(const Checkpoint& source, const std::string& dest, const Place& place) {
  if (!is_taken(place.above, place.name)) return false;
  const Folder there = place.folder();
  if (!there || !has_same_form(source, there))
    fail(ErrorKind::usage, "{}: exists, and is not what its parts make; choose another place", dest);
  return true;
}

/// Reads all tensors of the merged checkpoint and compares them with their checksums.
void check_written(const std::string& dir, const MergeOptions& options, const PackedCheckpoint& packed) {
  Problems problems;
  const Checkpoint written = open_checkpoint(dir, problems);
  problems.throw_if_any();
  const Plan& plan = packed.unpackable_set().plan;
  const std::vector<bool> all(plan.jobs.size(), true);
  check_same_contents(options.out, plan, read_sums(plan, *read_by_name(written), options.threads, all),
                      packed.manifest);
}

}  // namespace

bool is_of_unpack(const Json& command) { return command.contains(unpacked_key); }

Json unpack_part(const UnpackOptions& options, const PackedCheckpoint& packed, const PackedSet& set) {
  const PartNumber& part = *options.part;
  const Plan plan = plan_of_shards(packed);
  const Place place = place_of(options.dest, options.out);
  if (is_there_already(packed.manifest.source, options.dest, place))
    return report_part(options.dest, part, size_of(plan, deal(plan, part.count), part.index), true, there_already);
  const auto write = [&](OutputDir& out, const Deal& dealt) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<bool> own;
    for (const int p : dealt.of_file) own.push_back(p == part.index);
    write_shards(packed, set, options, own, out);
    for (size_t s = 0; s < own.size(); ++s)
      if (own[s]) out.journal().add(int64_t(s), "whole");
    return Json{{"wall", seconds_since(begin)}};
  };
  return write_part(run_of_parts(options.dest, place, packed, plan),
                    {.number = part,
                     .command = {{unpacked_key, fs::canonical(options.out).string()}},
                     .source_folder = packed.held.source(),
                     .mark = config_name,
                     .write = write});
}

Json merge_unpacked(const MergeOptions& options, const Place& place, const std::vector<PartFolder>& found) {
  const std::string recorded = found.empty() ? "" : found.front().command.at(unpacked_key).get<std::string>();
  const auto packed = open_to_unpack(options.source.empty() ? recorded : options.source);
  const Checkpoint& source = packed->manifest.source;
  const Plan plan = plan_of_shards(*packed);
  const PartRun run = run_of_parts(options.out, place, *packed, plan);
  const Parts parts(run);
  if (is_there_already(source, options.out, place)) {
    const bool reads = options.verify || !found.empty();  // a late part may differ from DEST
    if (reads) check_written(place.folder().lasting_path(), options, *packed);
    remove_merged_parts(parts_beside(place), unpacked_files(source));
    remove_empty_stage(place.above, place.name);
    note(fmt::format("{}: {}", options.out, reads ? "all is merged already" : there_already));
    return {{"out", options.out}, {"unchanged", true}};
  }
  if (found.empty()) fail(ErrorKind::usage, "{}: there are no parts of it; unpack --part writes them", options.out);
  if (!parts.missing().empty()) return missing_parts(options.out, parts.count(), parts.missing());
  int64_t bytes = 0;
  for (const OutFile& f : plan.files) bytes += f.bytes;
  check_apart(options.out, place, packed->dir);
  OutputDir dest(place.again(), options.out);
  dest.open({.options = run.head.options,
             .source = run.head.source,
             .made = unpacked_files(source),
             .bytes = bytes,
             .takes_parts = true,
             .even_in_use = true,
             .source_folder = packed->held.source()});
  parts.move_into(dest);
  write_small_files(*packed, dest);
  if (options.verify) {
    dest.keep(false);
    check_written(dest.built().lasting_path(), options, *packed);
  }
  dest.commit(config_name);
  note(fmt::format("{}: {}, {}, of {}", options.out, counted(source.tensors.size(), "tensor"), human_bytes(bytes),
                   counted(parts.count(), "part")));
  return {{"out", packed->dir}, {"dest", options.out}, {"tensors", source.tensors.size()}};
}

}  // namespace mxfp4
