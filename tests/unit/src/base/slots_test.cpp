// More threads than slots.
#include "src/base/slots.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <thread>
#include <vector>

using namespace mxfp4;

TEST_CASE("no more threads work at once than there are slots, and all do") {
  Slots slots(2);
  std::atomic<int> working = 0, most = 0, done = 0;
  const auto work = [&] {
    const int now = ++working;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) continue;
    std::this_thread::yield();
    --working;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 5; ++i)
    threads.emplace_back([&] {
      const Slots::Taken slot(slots);
      for (int turn = 0; turn < 200; ++turn) {
        work();
        const Slots::Left left;
        ++done;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(most <= 2);
  CHECK(done == 1000);
}

TEST_CASE("a thread that waits leaves its slot to another") {
  Slots slots(1);
  std::promise<void> other_worked;
  const Slots::Taken slot(slots);
  std::thread other([&] {
    const Slots::Taken others(slots);
    other_worked.set_value();
  });
  {
    const Slots::Left left;
    other_worked.get_future().wait();  // would block if the slot were kept
  }
  other.join();
}

TEST_CASE("what has no slot waits without leaving one") {
  Slots slots(1);
  { const Slots::Left left; }
  const Slots::Taken slot(slots);  // would block if there were no slot
  SUCCEED();
}
