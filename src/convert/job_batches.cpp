#include "src/convert/job_batches.h"

#include <unordered_map>

namespace mxfp4 {

std::vector<std::vector<int64_t>> job_batches(const Plan& plan, std::span<const int64_t> jobs, int64_t bytes) {
  std::vector<std::vector<int64_t>> rows;
  std::unordered_map<int, size_t> last;  // row of a tensor
  const auto fits = [&](const std::vector<int64_t>& row, const Job& job) {
    const Job &first = plan.jobs[size_t(row.front())], &before = plan.jobs[size_t(row.back())];
    const int64_t all = (job.end - first.begin) * plan.packed[size_t(job.target)].slice_bytes;
    return before.end == job.begin && all <= bytes;
  };
  for (const int64_t i : jobs) {
    const Job& job = plan.jobs[size_t(i)];
    if (job.target >= 0 && plan.packed[size_t(job.target)].part == Part::codes) {
      const auto at = last.find(job.target);
      if (at != last.end() && fits(rows[at->second], job)) {
        rows[at->second].push_back(i);
        continue;
      }
      last[job.target] = rows.size();
    }
    rows.push_back({i});
  }
  return rows;
}

}  // namespace mxfp4
