#include "src/convert/published_source.h"

#include <algorithm>
#include <set>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/convert/convert.h"
#include "src/convert/destination.h"
#include "src/packed/manifest.h"
#include "src/packed/packed_checkpoint.h"
#include "src/remote/address.h"
#include "src/verify/published.h"
#include "src/verify/request.h"
#include "src/verify/verify.h"

namespace mxfp4 {

PublishedList published_of(const ConvertOptions& o, const Checkpoint& checkpoint, Problems& problems) {
  if (has_manifest(o.checkpoint)) return refuse_published(o), PublishedList();
  if (o.no_published || o.part || o.merge) return {};
  const bool is_given = !o.published.empty();
  const PublishedList list = is_given ? read_published_list(o.published) : published_beside(checkpoint);
  return check_published(checkpoint, list, is_given, problems);
}

namespace {

void say_skipped(const ConvertOptions& o) {
  note(fmt::format("parts compare no published hashes; compare them with 'mxfp4-pack verify {} --published {}'",
                   printable(o.out), is_remote(o.checkpoint) ? printable(o.checkpoint) : "FILE"));
}

}  // namespace

bool skips_published(const ConvertOptions& o, const Checkpoint& checkpoint) {
  if (o.no_published || !(o.part || o.merge) || published_beside(checkpoint).empty()) return false;
  return say_skipped(o), true;
}

void refuse_to_trust_parts(const ConvertOptions& o) {
  if (o.published.empty()) return;
  fail(ErrorKind::usage,
       "--published: parts of {} are there, whose bytes were not compared; convert with --no-published, then verify "
       "with --published, or discard them: mxfp4-pack clean {} --remove",
       o.out, shell_word(o.out));
}

void drop_published(const ConvertOptions& o, ManifestOptions& manifest) {
  say_skipped(o);
  manifest.published.clear();
  manifest.skips_published = true;
}

void check_provable(const Input& in, const Backend& backend) {
  if (!backend.rewrite || !in.files.remote) return;
  fail(ErrorKind::usage, "{}: backend {} is lossy: it reads scales twice, so it needs a local copy of the checkpoint",
       in.files.dir, backend.name);
}

void prove_published(const ConvertOptions& o, const Input& in, const std::set<std::string>& compared, OutputDir& out) {
  if (!in.files.remote) return;
  PublishedList rest;
  for (const PublishedFile& f : in.published)
    if (find_shard(in.files, f.name) && !compared.contains(f.name)) rest.push_back(f);
  if (rest.empty()) return;
  note(fmt::format("{}: restored from {}, and compared with published hashes", counted(int64_t(rest.size()), "shard"),
                   printable(o.out)));
  Problems problems;
  const auto packed = open_packed(out.built(), o.out, problems);
  problems.throw_if_any();
  VerifyOptions options;
  options.device = o.device;
  compare_restored(*packed, rest, o.threads, device_for(options, Level::bytes), problems);
  if (problems.any()) out.keep(false);
  problems.throw_if_any();
}

void refuse_published(const ConvertOptions& o) {
  if (!o.published.empty())
    fail(ErrorKind::usage, "--published: {} is packed; use 'mxfp4-pack verify {} --published {}'", o.checkpoint,
         o.checkpoint, o.published);
}

bool has_record(const PublishedList& record, const PublishedList& published) {
  return std::all_of(published.begin(), published.end(), [&](const PublishedFile& f) {
    const PublishedFile* recorded = find(record, f.name);
    return recorded && recorded->hash == f.hash;
  });
}

bool is_recorded(const ConvertOptions& o, const ManifestOptions& made, const PublishedList& published) {
  if (has_record(made.published, published)) return true;
  if (!made.skips_published || !o.published.empty()) return false;
  return say_skipped(o), true;
}

void report_files(const Checkpoint& checkpoint, const PublishedList& published) {
  const auto names = [](const std::vector<std::string>& list) {
    return printable(fmt::format("{}", fmt::join(list, ", ")));
  };
  std::map<std::string, std::vector<std::string>> skipped;  // by reason
  for (const auto& [name, why] : checkpoint.left_out) skipped[why].push_back(name);
  for (const auto& [why, list] : skipped) note(fmt::format("skipped: {} ({})", names(list), why));
  if (published.empty()) return;
  std::vector<std::string> others;
  for (const std::string& name : original_files(checkpoint))
    if (!find(published, name)) others.push_back(name);
  std::set<std::string> by;
  for (const PublishedFile& f : published) by.insert(f.by);
  note(fmt::format("as published: {} ({})", counted(int64_t(published.size()), "file"), fmt::join(by, ", ")));
  if (others.empty()) return;
  const bool any_shard =
      std::any_of(others.begin(), others.end(), [](const std::string& n) { return n.ends_with(".safetensors"); });
  (any_shard ? warn : note)("without a published hash: " + names(others));
}

}  // namespace mxfp4
