// Loops of the kernels that may run on several threads. Kernels start no threads themselves; their caller provides the
// function that runs loops.
#pragma once

#include <cstdint>
#include <functional>

namespace mxfp4 {

/// Calls work(i) for every i in [0, count), in any order and from any thread; returns when all calls have.
using ParallelFor = std::function<void(int64_t count, const std::function<void(int64_t)>& work)>;

/// Sets the function that runs loops. Without it, iterations run one after the other. Must not be called during a loop.
void set_parallel_for(ParallelFor run);

/// multiplications: of the whole loop. If there are few, no threads are started, because they would cost more than the
/// work.
void parallel_for(int64_t count, int64_t multiplications, const std::function<void(int64_t)>& work);

}  // namespace mxfp4
