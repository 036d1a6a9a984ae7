// Loops of the kernels that may run on several threads. Kernels start none themselves: their caller says how.
#pragma once

#include <cstdint>
#include <functional>

namespace mxfp4 {

/// Calls work(i) for every i in [0, count), in any order and from any thread; returns when all calls have.
using ParallelFor = std::function<void(int64_t count, const std::function<void(int64_t)>& work)>;

/// How loops are carried out from now on; one call after the other until this is called. Not while a loop runs.
void set_parallel_for(ParallelFor run);

/// multiplications: of the whole loop. If there are few, no threads are started, because they would cost more than the
/// work.
void parallel_for(int64_t count, int64_t multiplications, const std::function<void(int64_t)>& work);

}  // namespace mxfp4
