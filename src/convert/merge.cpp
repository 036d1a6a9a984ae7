#include "src/convert/merge.h"

#include "src/base/log.h"
#include "src/convert/convert.h"
#include "src/convert/part.h"
#include "src/convert/part_run.h"
#include "src/convert/unchanged.h"
#include "src/io/merge_claim.h"
#include "src/packed/file_checks.h"
#include "src/packed/packed_checkpoint.h"
#include "src/remote/address.h"
#include "src/verify/verify.h"

namespace mxfp4 {

namespace {

constexpr int most_ranks = 4096;

/// What other parts' runs were given is compared when the plan is there.
ConvertOptions options_of(const MergeOptions& m, const PartFolder& part) {
  ConvertOptions o;
  try {
    o = read_command(part.command);
    if (o.tp_size < 1 || o.tp_size > most_ranks)
      fail(ErrorKind::input, "{}: {} of {} has a tensor-parallel size of {}", m.out, part_record, part.name, o.tp_size);
  } catch (const Json::exception&) {
    fail(ErrorKind::input, "{}: {} of {} is from another version", m.out, part_record, part.name);
  }
  o.out = m.out;
  o.merge = true;
  o.verify = m.verify;
  o.threads = m.threads;
  o.device = m.device;
  o.json = m.json;
  return o;
}

/// The output in OUT's place, if there are no parts. Throws unless it is as it was written.
Json look_at_output(const std::string& out, const Place& place) {
  const Folder there = place.folder();
  if (!has_manifest(there))
    fail(ErrorKind::usage, "{}: there are no parts of it{}; convert --part writes them", out,
         there ? ", and it is not an output of mxfp4-pack" : "");
  Problems damage;
  const auto packed = open_packed(there, out, damage);
  if (!damage.any()) check_files(*packed, damage);
  check_as_written(*packed, damage);
  if (damage.any()) {
    std::vector<std::string> lines = {out + ": there are no parts of it, and the output is not as it was written:"};
    for (const std::string& line : damage.errors()) lines.push_back(line);
    throw Error(ErrorKind::input, lines);
  }
  std::string sets;
  for (const ManifestSet& set : packed->manifest.sets) sets += (sets.empty() ? "" : "; ") + describe(set);
  note(fmt::format("{}: already complete, no parts to merge: {}", out, sets));
  return {{"out", out}, {"unchanged", true}};
}

/// Makes OUT of its parts.
Json join(const MergeOptions& options) {
  const Place place = place_of(options.out);
  const MergeClaim claim(place, options.out);
  // ends a merge that was cut short when OUT was in its place
  const bool is_finished = !is_fixed_output(place) && OutputDir(place.again(), options.out, owned_files).finished();
  const std::vector<PartFolder> parts = read_parts(parts_beside(place));
  if (!parts.empty()) {
    const ConvertOptions whole = options_of(options, parts.front());
    if (is_remote(whole.checkpoint))
      note(fmt::format("{}: merge reads headers and small files from {}", options.out, printable(whole.checkpoint)));
    return convert(whole, place);
  }
  if (is_finished && !has_manifest(place.folder())) {
    note(fmt::format("{}: all is merged already", options.out));
    return {{"out", options.out}, {"unchanged", true}};
  }
  return look_at_output(options.out, place);
}

}  // namespace

std::string array_expression(std::span<const int> numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (last > i) text += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

Json missing_parts(const std::string& out, int parts, std::span<const int> missing) {
  return {{"out", out},
          {"parts", parts},
          {"missing", std::vector<int>(missing.begin(), missing.end())},
          {"array", array_expression(missing)}};
}

Json merge(const MergeOptions& options) {
  Json result = join(options);
  if (!options.verify || !result.value("unchanged", false) || !has_manifest(options.out)) return result;
  check_bytes(options.out, options.threads);  // OUT existed before
  note(fmt::format("{}: its bytes have their checksums", options.out));
  MergeOptions late = options;
  late.verify = false;
  if (parts_beside(place_of(options.out))) join(late);  // removes late parts
  return result;
}

}  // namespace mxfp4
