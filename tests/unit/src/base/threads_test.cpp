// Work on several threads, also if the system starts fewer threads than requested.
#include "src/base/threads.h"

#include <catch2/catch.hpp>
#include <set>
#include <system_error>
#include <thread>

#include "kernels/parallel.h"
#include "src/base/log.h"

using namespace mxfp4;

TEST_CASE("one thread means this one") {
  std::set<std::thread::id> ids;
  run_jobs(100, 1, [&](int64_t) { ids.insert(std::this_thread::get_id()); });
  CHECK(ids == std::set{std::this_thread::get_id()});
}

TEST_CASE("a thread that the system refuses is no error") {
  set_verbosity(Verbosity::quiet);
  CHECK(try_to_start([] {}));
  CHECK(!try_to_start([] { throw std::system_error(EAGAIN, std::generic_category()); }));
  CHECK(!try_to_start([] { throw std::bad_alloc(); }));
}

TEST_CASE("loops of kernels run where their caller says, small ones at once") {
  int64_t lent = 0, done = 0;
  set_parallel_for([&](int64_t count, const std::function<void(int64_t)>& work) {
    ++lent;
    for (int64_t i = count; i-- > 0;) work(i);
  });
  parallel_for(10, 1 << 20, [&](int64_t i) { done += i; });
  CHECK(lent == 0);
  parallel_for(10, int64_t(1) << 30, [&](int64_t i) { done += i; });
  set_parallel_for({});
  CHECK(lent == 1);
  CHECK(done == 90);
}
