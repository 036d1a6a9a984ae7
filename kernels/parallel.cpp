#include "kernels/parallel.h"

#include <utility>

namespace mxfp4 {

namespace {

constexpr int64_t few = 1 << 22;

ParallelFor& current() {
  static ParallelFor run;
  return run;
}

}  // namespace

void set_parallel_for(ParallelFor run) { current() = std::move(run); }

void parallel_for(int64_t count, int64_t multiplications, const std::function<void(int64_t)>& work) {
  if (multiplications > few && current()) return current()(count, work);
  for (int64_t i = 0; i < count; ++i) work(i);
}

}  // namespace mxfp4
