#include "src/convert/finished_jobs.h"

#include <algorithm>
#include <map>

#include "src/base/log.h"
#include "src/base/progress.h"
#include "src/device/pipeline.h"
#include "src/packed/checksums.h"
#include "src/plan/jobs.h"

namespace mxfp4 {

namespace {

constexpr int most_named = 20;

/// Whether everything that the job wrote has its checksum.
bool is_on_disk(Worker& worker, const Plan& plan, const Job& job, Checksums& sums, OpenFiles& files) {
  const std::vector<FileRange> ranges = output_of(plan, job);
  const std::vector<Hash*> hashes = output_hashes(plan, job, sums);
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto& [file, offset, bytes] = ranges[i];
    uint8_t* data = worker.packed.reserve(bytes);
    files.get(size_t(file))->read(data, bytes, offset);
    if (!XXH128_isEqual(hash_bytes(data, bytes), *hashes[i])) return false;
  }
  return true;
}

/// Reports files in which bytes of finished jobs are damaged.
void note_damaged(const Plan& plan, const std::vector<bool>& done, const std::vector<uint8_t>& good) {
  std::map<int, int64_t> steps;  // by file
  for (size_t i = 0; i < done.size(); ++i)
    if (done[i] && !good[i])
      for (const int file : files_of(plan, plan.jobs[i])) ++steps[file];
  int named = 0;
  for (const auto& [file, count] : steps) {
    if (named++ == most_named) return note("and " + counted(steps.size() - most_named, "more file"));
    note(fmt::format("{}: not as it was written; steps that are done again: {}", plan.files[size_t(file)].name, count));
  }
}

}  // namespace

std::vector<uint8_t> jobs_on_disk(const Plan& plan, const std::vector<bool>& done, Checksums& sums, OpenFiles& files,
                                  int threads) {
  std::vector<uint8_t> good(done.size());
  const int64_t count = std::count(done.begin(), done.end(), true);
  if (count == 0) return good;
  Progress progress("checking", count, "steps");
  run_jobs(int64_t(done.size()), threads, [&](Worker& worker, int64_t i) {
    if (!done[size_t(i)]) return;
    good[size_t(i)] = is_on_disk(worker, plan, plan.jobs[size_t(i)], sums, files);
    progress.add(1);
  });
  note_damaged(plan, done, good);
  return good;
}

}  // namespace mxfp4
