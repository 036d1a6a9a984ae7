// Runs CUDA source on a CPU, one thread of a block after the other. If a kernel has barriers, its threads are contexts
// with stacks of their own, which are switched at barriers.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#define __global__
#define __device__
#define __shared__
#define __forceinline__ inline

using cudaStream_t = void*;
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
struct dim3 {
  dim3(unsigned x = 1, unsigned y = 1) : x(x), y(y) {}
  unsigned x, y;
};
inline dim3 gridDim, blockDim, blockIdx, threadIdx;

template <class Kernel, class... Args>
void launch(dim3 grid, dim3 block, Kernel kernel, Args... args) {
  gridDim = grid, blockDim = block;
  for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
    for (threadIdx.y = 0; threadIdx.y < block.y; ++threadIdx.y)
      for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) kernel(args...);
}

struct Thread {
  ucontext_t begin;
  jmp_buf at;
  std::vector<char> stack = std::vector<char>(1 << 14);
  bool started = false, done = false;
};
inline ucontext_t scheduler;
inline jmp_buf next;
inline std::vector<Thread> threads;
inline std::function<void()> body;

inline void __syncthreads() {
  if (!_setjmp(threads[threadIdx.x].at)) _longjmp(next, 1);
}

inline void run_thread() {
  body();
  threads[threadIdx.x].done = true;
  _longjmp(next, 1);
}

/// Runs a thread to its next barrier, or to its end.
inline void go_on(Thread& thread) {
  if (_setjmp(next)) return;
  if (thread.started) _longjmp(thread.at, 1);
  thread.started = true;
  swapcontext(&scheduler, &thread.begin);
}

/// The threads of the block blockIdx, which meet at barriers.
inline void run_block(unsigned size) {
  threads = std::vector<Thread>(size);
  for (Thread& t : threads) {
    getcontext(&t.begin);
    t.begin.uc_stack.ss_sp = t.stack.data(), t.begin.uc_stack.ss_size = t.stack.size();
    makecontext(&t.begin, run_thread, 0);
  }
  for (bool some = true; some;) {
    some = false;
    for (threadIdx.x = 0; threadIdx.x < size; ++threadIdx.x) {
      if (threads[threadIdx.x].done) continue;
      some = true;
      go_on(threads[threadIdx.x]);
    }
  }
}

/// Blocks whose threads have one axis.
inline void launch_with_barriers(dim3 grid, unsigned size, std::function<void()> kernel) {
  gridDim = grid, blockDim = size, body = std::move(kernel);
  for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
    for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) run_block(size);
}
