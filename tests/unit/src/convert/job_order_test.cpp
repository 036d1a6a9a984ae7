// The order of jobs depends on the ranges of their source that are in the page cache.
#include "src/convert/job_order.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "src/base/threads.h"

using namespace mxfp4;

namespace {

/// The order in which jobs are taken. `cached` returns the jobs in the page cache before each one.
std::vector<int64_t> taken(std::vector<int64_t> in_source, const std::function<std::set<int64_t>(size_t taken)>& cached,
                           bool past_cache = true) {
  std::vector<int64_t> list;
  const size_t count = in_source.size();
  JobOrder order(
      std::move(in_source), [&](int64_t job) { return cached(list.size()).count(job) > 0; }, past_cache);
  while (list.size() < count) list.push_back(order.next());
  return list;
}

}  // namespace

TEST_CASE("jobs of a source that nobody else reads are taken in order") {
  const std::vector<int64_t> in_order = {0, 1, 2, 3, 4};
  CHECK(taken({4, 3, 2, 1, 0}, [](size_t) { return std::set<int64_t>{}; }) == in_order);
  CHECK(taken({4, 3, 2, 1, 0}, [](size_t) { return std::set<int64_t>{0, 1, 2, 3, 4}; }) == in_order);
  CHECK(taken({}, [](size_t) { return std::set<int64_t>{}; }).empty());
}

TEST_CASE("what is in the page cache goes first, where that is the next job or the first in the source") {
  CHECK(taken({2, 0, 3, 1}, [](size_t) { return std::set<int64_t>{2}; }) == std::vector<int64_t>{2, 0, 1, 3});
  CHECK(taken({2, 0, 3, 1}, [](size_t) { return std::set<int64_t>{0, 2}; }) == std::vector<int64_t>{0, 2, 1, 3});
}

TEST_CASE("a run follows another reader of its source, and goes to meet it while there is nothing to follow") {
  // Whenever a job is taken, the other reader has read one more, beginning with 0.
  const auto reader = [](size_t taken) {
    std::set<int64_t> cached;
    for (int64_t i = 0; i < int64_t(taken); ++i) cached.insert(i);
    return cached;
  };
  CHECK(taken({0, 1, 2, 3, 4, 5}, reader) == std::vector<int64_t>{0, 5, 1, 2, 3, 4});
  // a reader at half the speed
  const auto slow = [&](size_t taken) { return reader(taken / 2); };
  CHECK(taken({0, 1, 2, 3, 4, 5, 6, 7}, slow) == std::vector<int64_t>{0, 1, 7, 6, 5, 4, 2, 3});
}

TEST_CASE("a run that reads through the page cache does not take its own pages for another reader's") {
  // The last job's source is in the cache until the next job is read, and so is the range that the system has read
  // ahead.
  const auto own = [](size_t taken) { return taken ? std::set<int64_t>{int64_t(taken) - 1} : std::set<int64_t>{}; };
  const auto ahead = [](size_t taken) { return taken ? std::set<int64_t>{0, int64_t(taken)} : std::set<int64_t>{}; };
  const std::vector<int64_t> in_order = {0, 1, 2, 3, 4};
  CHECK(taken({0, 1, 2, 3, 4}, own, false) == in_order);
  CHECK(taken({0, 1, 2, 3, 4}, own, true) != in_order);
  CHECK(taken({0, 1, 2, 3, 4}, ahead, false) == in_order);
}

TEST_CASE("threads take every job once") {
  constexpr int64_t count = 1000;
  std::vector<int64_t> in_source(count);
  for (int64_t i = 0; i < count; ++i) in_source[size_t(i)] = count - 1 - i;
  int64_t asked = 0;
  JobOrder order(
      in_source, [&](int64_t job) { return (job * 7 + ++asked) % 3 == 0; }, true);
  std::vector<std::atomic<int>> times(count);
  run_jobs(count, 8, [&](int64_t) { ++times[size_t(order.next())]; });
  CHECK(std::all_of(times.begin(), times.end(), [](const auto& n) { return n == 1; }));
}
