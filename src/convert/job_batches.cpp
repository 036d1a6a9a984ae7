#include "src/convert/job_batches.h"

#include <unordered_map>

namespace mxfp4 {

std::vector<std::vector<int64_t>> job_batches(const Plan& plan, std::span<const int64_t> jobs, int64_t bytes) {
  std::vector<std::vector<int64_t>> rows;
  std::unordered_map<size_t, size_t> last;  // the last row of each tensor
  const auto codes_of = [&](int64_t i) {
    const auto* job = std::get_if<PackJob>(&plan.jobs[size_t(i)]);
    return job && plan.packed[job->target].part == Part::codes ? job : nullptr;
  };
  const auto fits = [&](const std::vector<int64_t>& row, const PackJob& job) {
    const int64_t all = (job.end - codes_of(row.front())->begin) * plan.packed[job.target].slice_bytes;
    return codes_of(row.back())->end == job.begin && all <= bytes;
  };
  for (const int64_t i : jobs) {
    if (const PackJob* job = codes_of(i)) {
      const auto at = last.find(job->target);
      if (at != last.end() && fits(rows[at->second], *job)) {
        rows[at->second].push_back(i);
        continue;
      }
      last[job->target] = rows.size();
    }
    rows.push_back({i});
  }
  return rows;
}

}  // namespace mxfp4
