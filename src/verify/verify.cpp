#include "src/verify/verify.h"

#include <algorithm>
#include <chrono>

#include "src/base/elapsed.h"
#include "src/base/log.h"
#include "src/models/complete.h"
#include "src/packed/file_checks.h"
#include "src/packed/packed_checkpoint.h"
#include "src/packed/rebuilt.h"
#include "src/verify/original.h"
#include "src/verify/request.h"
#include "src/verify/set_check.h"
#include "src/verify/verdict.h"

namespace mxfp4 {

namespace {

void add(const SetReport& report, Problems& problems) {
  for (const auto& [at, text] : report.problems) problems.error(at, "{}", text);
}

}  // namespace

void check_bytes(const std::string& out, int threads) {
  Problems problems;
  const auto packed = open_packed(out, problems);
  if (!problems.any()) add(check_checksums(*packed, threads, PageCache::automatic), problems);
  problems.throw_if_any();
}

namespace {

/// Compares every set's tensors with the source. If the source is another checkpoint, reports only that, and returns
/// false.
bool verify_tensors(const VerifyOptions& options, const PackedCheckpoint& packed, const Original& source,
                    const DeviceChoice& devices, bool is_whole, Verdict& v) {
  for (size_t i = 0; i < packed.sets.size(); ++i) {
    const SetReport report = check_set(packed, packed.sets[i], source, options, v.levels[i], devices);
    const bool is_other = i == 0 && is_whole && !report.other_source.empty();
    if (!is_other) {
      add(report, v.problems);
      continue;
    }
    v.problems = {};
    v.problems.error(source.checkpoint->dir, "{}", report.other_source);
    return false;
  }
  return true;
}

/// Verifies the contents of the files, all of which exist.
void verify_contents(const VerifyOptions& options, const PackedCheckpoint& packed, const Original& source,
                     KernelFile* saved, Verdict& v) {
  const bool first = options.part.index == 0;
  if (source) source.check_form(packed.manifest.source, options.out);
  if (source && first) source.compare_rest(packed.manifest.source, v.problems);
  const int64_t of_rest = v.problems.count();
  if (first && of_rest == 0)
    compare_with_rebuilt(packed, source ? *source.checkpoint : packed.manifest.source, v.problems);
  const DeviceChoice devices = device_for(options, *std::max_element(v.levels.begin(), v.levels.end()));
  const bool is_same = verify_tensors(options, packed, source, devices, v.problems.count() == of_rest, v);
  KernelOptions kernels = kernel_options(options, devices);
  kernels.file = saved;
  for (size_t i = 0; i < packed.sets.size(); ++i) {
    if (v.levels[i] < Level::kernels) continue;
    if (is_same) v.kernels[i] = verify_kernels(packed, i, *source.checkpoint, kernels, v.problems);
    if (v.kernels[i].checks.empty()) v.levels[i] = Level::bytes;  // another checkpoint, or layers of other parts
  }
}

/// Reports a problem if OUT's source lacks something that its config requires. If --allow-incomplete permitted that, it
/// is a warning.
void report_missing(const PackedCheckpoint& packed, Verdict& v) {
  if (v.problems.any()) return;
  Problems lacks;
  const bool allowed = packed.manifest.options.model.allow_incomplete;
  check_complete(packed.manifest.source, allowed, allowed ? lacks : v.problems);
  v.incomplete = lacks.warnings();
  if (allowed && v.incomplete.empty())
    v.incomplete = {"convert found weights of zeros, NaN or infinity, which --allow-incomplete allowed"};
  for (const std::string& line : v.incomplete) warn(line);
}

}  // namespace

bool verify(const VerifyOptions& options) {
  const std::optional<NewFile> save = new_save(options);
  Verdict v;
  const auto begin = std::chrono::steady_clock::now();
  const PublishedList list = options.published.empty() ? PublishedList() : read_published_list(options.published);
  // Opened before OUT, so that the temporary memory of both is not needed at the same time.
  const Original source(options.source, options.links);
  const auto packed = open_packed(options.out, v.problems);
  for (const PackedSet& set : packed->sets) v.levels.push_back(level_of(options, set));
  if (!list.empty() && !v.problems.any()) check_restorable(*packed);
  if (std::count(v.levels.begin(), v.levels.end(), Level::kernels)) check_layers(*packed, options.kernels);
  report_missing(*packed, v);
  const bool first = options.part.index == 0;
  if (first) check_files(*packed, v.problems);
  if (first) check_nothing_else(*packed, v.problems);
  KernelFile saved;
  if (v.problems.any())
    v.levels.assign(v.levels.size(), Level::files);  // no tensor is read
  else
    verify_contents(options, *packed, source, save ? &saved : nullptr, v);
  const bool lacks_kernels = std::count(v.levels.begin(), v.levels.end(), Level::kernels) < int64_t(v.levels.size());
  if (options.level == Level::kernels && options.part.count == 1 && lacks_kernels && !v.problems.any())
    fail(ErrorKind::input, "{}: no layer can be computed, so level kernels is not reached; try other --layers",
         options.out);
  if (!saved.empty())
    save->write(saved.text());
  else if (save)
    warn(fmt::format("{}: not written, because no layer was computed", options.save));
  if (!list.empty() && !v.problems.any())
    v.published = compare_with_list(options, *packed, list, device_for(options, Level::bytes), v.problems);
  if (v.problems.any_unread()) v.problems.throw_if_any();  // nothing is known of these files
  v.seconds = seconds_since(begin);
  print(options, *packed, v);
  return !v.problems.any();
}

}  // namespace mxfp4
