// The files that each part writes.
#include "src/plan/deal.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "src/convert/merge.h"

using namespace mxfp4;

namespace {

/// A plan with `ranks` ranks. Each row of `jobs` is a job: the files of its ranks.
Plan plan_of(const std::vector<int64_t>& file_bytes, const std::vector<std::vector<int>>& jobs) {
  Plan plan;
  for (const int64_t bytes : file_bytes) plan.files.push_back({"", "", bytes});
  plan.tp_size = int(jobs.front().size());
  for (const auto& files : jobs) {
    plan.jobs.push_back(PackJob{plan.packed.size(), 0, 1});
    for (const int file : files) {
      PackedTensor& t = plan.packed.emplace_back();
      t.file = file;
      t.slice_bytes = 1;
    }
  }
  return plan;
}

std::vector<int64_t> loads(const Plan& plan, const Deal& dealt, int parts) {
  std::vector<int64_t> bytes(static_cast<size_t>(parts));
  for (size_t f = 0; f < plan.files.size(); ++f) bytes[size_t(dealt.of_file[f])] += plan.files[f].bytes;
  return bytes;
}

}  // namespace

TEST_CASE("parts are dealt whole files, longest first, and differ by one at most") {
  std::vector<int64_t> bytes;
  std::vector<std::vector<int>> jobs;
  for (int f = 0; f < 100; ++f) {
    bytes.push_back(100 + f * 37 % 61);
    jobs.push_back({f});
  }
  const Plan plan = plan_of(bytes, jobs);
  for (const int parts : {1, 2, 3, 8, 64, 99, 100, 200}) {
    const Deal dealt = deal(plan, parts);
    CHECK(dealt.of_job == dealt.of_file);
    const auto all = loads(plan, dealt, parts);
    CHECK(std::accumulate(all.begin(), all.end(), int64_t(0)) ==
          std::accumulate(bytes.begin(), bytes.end(), int64_t(0)));
    const auto [least, most] = std::minmax_element(all.begin(), all.end());
    CHECK(*most - *least <= *std::max_element(bytes.begin(), bytes.end()));
  }
}

TEST_CASE("files of all ranks of a tensor are of one part") {
  const Plan plan = plan_of({10, 10, 10, 10, 10, 10}, {{0, 3}, {0, 3}, {1, 4}, {2, 5}});
  const Deal dealt = deal(plan, 3);
  CHECK(dealt.of_file == std::vector<int>{0, 1, 2, 0, 1, 2});
  CHECK(dealt.of_job == std::vector<int>{0, 0, 1, 2});
}

TEST_CASE("a job that only reads is dealt by itself") {
  Plan plan = plan_of({10}, {{0}});
  const Tensor tensor;
  plan.copied.push_back({&tensor, std::nullopt, 0});
  for (size_t i = 0; i < 3; ++i) {
    plan.copy_pieces.push_back({0, {&tensor, int64_t(i) * copy_piece_bytes, 6}});
    plan.jobs.push_back(CopyJob{i, i + 1});
  }
  CHECK(deal(plan, 2).of_job == std::vector<int>{0, 1, 1, 0});
}

TEST_CASE("numbers as an array expression") {
  const auto text = [](const std::vector<int>& numbers) { return array_expression(numbers); };
  CHECK(text({}) == "");
  CHECK(text({3}) == "3");
  CHECK(text({3, 17, 18}) == "3,17-18");
  CHECK(text({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8");
}
