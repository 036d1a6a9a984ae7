#include "src/remote/fetch_order.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace mxfp4 {

namespace {

constexpr size_t files_at_once = 4;

using Place = std::tuple<size_t, int64_t, size_t>;  // group of files, offset, file

Place place_of(size_t file, int64_t offset) { return {file / files_at_once, offset, file}; }

Place end_of(const std::vector<RemoteRange>& ranges) {
  Place last;
  for (const RemoteRange& r : ranges) last = std::max(last, place_of(r.file, r.offset + r.bytes));
  return last;
}

/// A range of the job with this rank in the order of jobs.
struct Owned {
  RemoteRange range;
  size_t job;
};

std::vector<Owned> by_job(const std::vector<std::vector<RemoteRange>>& jobs, const std::vector<int64_t>& order) {
  std::vector<Owned> out;
  for (size_t rank = 0; rank < order.size(); ++rank)
    for (const RemoteRange& r : jobs[size_t(order[rank])]) out.push_back({r, rank});
  return out;
}

std::vector<Owned> by_place(std::vector<Owned> ranges) {
  std::stable_sort(ranges.begin(), ranges.end(), [](const Owned& a, const Owned& b) {
    return place_of(a.range.file, a.range.offset) < place_of(b.range.file, b.range.offset);
  });
  return ranges;
}

/// Whether each group holds few bytes at any time if its ranges arrive in this order.
std::vector<bool> groups_that_fit(const std::vector<Owned>& ranges, size_t files, int64_t most_held) {
  struct Job {
    size_t left = 0;
    int64_t bytes = 0;
  };
  std::vector<Job> jobs;
  for (const Owned& o : ranges) {
    jobs.resize(std::max(jobs.size(), o.job + 1));
    ++jobs[o.job].left;
  }
  std::vector<bool> fits(files / files_at_once + 1, true);
  int64_t held = 0;
  for (const Owned& o : ranges) {
    Job& job = jobs[o.job];
    held += o.range.bytes;
    job.bytes += o.range.bytes;
    if (held - job.bytes > most_held)
      fits[o.range.file / files_at_once] = false;  // its own bytes are used as they come
    if (--job.left == 0) held -= job.bytes;
  }
  return fits;
}

}  // namespace

FetchOrder fetch_order(const std::vector<std::vector<RemoteRange>>& jobs, size_t files, int64_t most_held) {
  FetchOrder order;
  std::vector<Place> ends;
  for (const auto& ranges : jobs) ends.push_back(end_of(ranges));
  order.jobs.resize(jobs.size());
  std::iota(order.jobs.begin(), order.jobs.end(), 0);
  std::stable_sort(order.jobs.begin(), order.jobs.end(),
                   [&](int64_t a, int64_t b) { return ends[size_t(a)] < ends[size_t(b)]; });
  const std::vector<Owned> in_jobs = by_job(jobs, order.jobs), in_files = by_place(in_jobs);
  const std::vector<bool> fits = groups_that_fit(in_files, files, most_held);
  for (size_t file = 0; file < files; ++file) order.in_order.push_back(fits[file / files_at_once]);
  std::vector<int64_t> fetched(files);  // of files in order: the bytes before this place are in order.ranges
  for (size_t group = 0; group < fits.size(); ++group)
    for (const Owned& o : fits[group] ? in_files : in_jobs) {
      RemoteRange r = o.range;
      if (r.file / files_at_once != group) continue;
      if (fits[group]) {
        const int64_t end = r.offset + r.bytes;
        r.offset = std::max(r.offset, fetched[r.file]);
        r.bytes = end - r.offset;
        fetched[r.file] = std::max(fetched[r.file], end);
      }
      if (r.bytes > 0) order.ranges.push_back(r);
    }
  return order;
}

bool is_whole(const FetchOrder& order, size_t file, int64_t begin, int64_t end) {
  if (!order.in_order[file]) return false;
  for (const RemoteRange& r : order.ranges)
    if (r.file == file && r.offset == begin) begin += r.bytes;
  return begin == end;
}

}  // namespace mxfp4
