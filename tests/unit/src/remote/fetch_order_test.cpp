// Which bytes of a source are fetched when.
#include "src/remote/fetch_order.h"

#include <catch2/catch.hpp>

using namespace mxfp4;

namespace {

using Jobs = std::vector<std::vector<RemoteRange>>;

std::vector<std::pair<size_t, int64_t>> places(const FetchOrder& order) {
  std::vector<std::pair<size_t, int64_t>> out;
  for (const RemoteRange& r : order.ranges) out.emplace_back(r.file, r.offset);
  return out;
}

}  // namespace

TEST_CASE("files side by side are fetched in the order of their bytes") {
  const Jobs jobs = {
      {{0, 30, 10}}, {{0, 10, 10}, {0, 50, 10}}, {{0, 20, 10}, {0, 40, 10}}, {{1, 10, 50}}, {{9, 10, 1}}};
  const FetchOrder order = fetch_order(jobs, 10, 1000);
  CHECK(order.jobs == std::vector<int64_t>{0, 2, 1, 3, 4});
  CHECK(places(order) == decltype(places(order)){{0, 10}, {1, 10}, {0, 20}, {0, 30}, {0, 40}, {0, 50}, {9, 10}});
  CHECK(is_whole(order, 0, 10, 60));
  CHECK(!is_whole(order, 0, 0, 60));
  CHECK(!is_whole(order, 0, 10, 61));
  CHECK(is_whole(order, 1, 10, 60));
  CHECK(is_whole(order, 2, 10, 10));
}

TEST_CASE("bytes that two jobs read are fetched once in order") {
  const FetchOrder order = fetch_order({{{0, 0, 20}}, {{0, 0, 8}}, {{0, 8, 22}}}, 1, 1000);
  CHECK(is_whole(order, 0, 0, 30));
  int64_t bytes = 0;
  for (const RemoteRange& r : order.ranges) bytes += r.bytes;
  CHECK(bytes == 30);
}

TEST_CASE("files whose jobs would hold much memory are fetched job by job") {
  const Jobs jobs = {{{0, 0, 10}, {0, 40, 10}}, {{0, 10, 30}}, {{4, 0, 10}}};
  const FetchOrder fits = fetch_order(jobs, 5, 30), held = fetch_order(jobs, 5, 9);
  CHECK(is_whole(fits, 0, 0, 50));
  CHECK(!is_whole(held, 0, 0, 50));
  CHECK(is_whole(held, 4, 0, 10));
  CHECK(held.jobs == std::vector<int64_t>{1, 0, 2});
  CHECK(places(held) == decltype(places(held)){{0, 10}, {0, 0}, {0, 40}, {4, 0}});
}
