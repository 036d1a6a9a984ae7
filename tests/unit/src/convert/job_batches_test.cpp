// The batches of jobs that a worker carries out together.
#include "src/convert/job_batches.h"

#include <catch2/catch.hpp>
#include <map>
#include <numeric>

#include "src/backends/backend.h"
#include "tests/support/program.h"

using namespace mxfp4;

namespace {

struct Tiny {
  Tiny()
      : checkpoint(open_checkpoint(tiny_gpt_oss, problems)),
        model(recognise(checkpoint, {}, problems)),
        plan(make_plan(checkpoint, model, find_backend("marlin", "vllm", ""), {.job_bytes = 1}, problems)),
        all(plan.jobs.size()) {
    problems.throw_if_any();
    std::iota(all.begin(), all.end(), 0);
  }
  const PackJob* codes(int64_t i) const {
    const auto* job = std::get_if<PackJob>(&plan.jobs[size_t(i)]);
    return job && plan.packed[job->target].part == Part::codes ? job : nullptr;
  }
  Problems problems;
  Checkpoint checkpoint;
  Model model;
  Plan plan;
  std::vector<int64_t> all;
};

}  // namespace

TEST_CASE("every job is in one row; rows hold the codes of one tensor in order, and no more than was asked for") {
  const Tiny t;
  int64_t slice = 0;
  for (const PackedTensor& p : t.plan.packed)
    if (p.part == Part::codes) slice = std::max(slice, p.slice_bytes);
  size_t longest = 0;
  for (const int64_t bytes : {int64_t(0), slice, 2 * slice, 1000 * slice}) {
    std::vector<int64_t> seen;
    for (const std::vector<int64_t>& row : job_batches(t.plan, t.all, bytes)) {
      REQUIRE(!row.empty());
      seen.insert(seen.end(), row.begin(), row.end());
      longest = std::max(longest, row.size());
      if (row.size() == 1) continue;
      REQUIRE(t.codes(row[0]));
      const size_t target = t.codes(row[0])->target;
      CHECK(int64_t(row.size()) * t.plan.packed[target].slice_bytes <= bytes);
      for (size_t i = 1; i < row.size(); ++i) {
        REQUIRE(t.codes(row[i]));
        CHECK(t.codes(row[i])->target == target);
        CHECK(t.codes(row[i])->begin == t.codes(row[i - 1])->end);
      }
    }
    if (bytes == 0) CHECK(seen == t.all);
    std::sort(seen.begin(), seen.end());
    CHECK(seen == t.all);
  }
  CHECK(longest > 2);
}

TEST_CASE("a row ends before a job that is done already") {
  const Tiny t;
  std::map<size_t, std::vector<int64_t>> of;
  for (const int64_t i : t.all)
    if (const PackJob* job = t.codes(i)) of[job->target].push_back(i);
  std::vector<int64_t> jobs = of.begin()->second;
  REQUIRE(jobs.size() > 2);
  jobs.erase(jobs.begin() + 1);
  const auto rows = job_batches(t.plan, jobs, int64_t(1) << 30);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0] == std::vector{jobs[0]});
  CHECK(rows[1] == std::vector(jobs.begin() + 1, jobs.end()));
}
