// The pack and the unpack kernel, for every layout. blockIdx.x: the block of the plan, z: the item.
#pragma once

#include "kernels/pack/cuda/planar.cuh"
#include "kernels/pack/cuda/store_rows.cuh"

namespace mxfp4 {

extern __shared__ uint4 shared_chunks[];

template <int bytes, class Words>
__device__ __forceinline__ void store_group(uint8_t* to, const Words& x) {
  if constexpr (bytes == 16)
    __stcs(reinterpret_cast<uint4*>(to), make_uint4(x.word[0], x.word[1], x.word[2], x.word[3]));
  else if constexpr (bytes == 4)
    __stcs(reinterpret_cast<uint32_t*>(to), x.word[0]);
  else
    __stcs(to, uint8_t(x.word[0]));
}
template <int bytes, class Words>
__device__ __forceinline__ Words load_group(const uint8_t* from) {
  if constexpr (bytes == 16) {
    const uint4 x = __ldg(reinterpret_cast<const uint4*>(from));
    return {{x.x, x.y, x.z, x.w}};
  } else if constexpr (bytes == 4) {
    return {{__ldg(reinterpret_cast<const uint32_t*>(from))}};
  } else {
    return {{__ldg(from)}};
  }
}

/// Two lanes of a warp have two groups each, of which their first are neighbours in the packed matrix, and so are their
/// second. Gives the even lane the first of both, and the odd lane the second of both: both lanes' words are
/// neighbours.
template <class Words>
__device__ __forceinline__ void exchange(Words& first, Words& second) {
  const bool odd = threadIdx.x & 1;
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const uint32_t got = __shfl_xor_sync(~0u, odd ? first.word[q] : second.word[q], 1);
    odd ? first.word[q] = got : second.word[q] = got;
  }
}

/// Shared memory to packed words. bytes: of a group. Form: WordForm or PlanarForm.
template <class Form, int bytes>
__device__ __forceinline__ void store_groups(const Block& block) {
  const BlockPlan& plan = block.plan;
  uint8_t* const packed = block.item().packed + block.begin.to;
  for (uint32_t i = threadIdx.x; i < plan.group_count; i += Block::threads()) {
    const PlanGroup group = plan.groups[i];
    typename Form::Words words[BlockPlan::most_together];
    Form::pack(plan, block.bytes, group.base, words);
    uint32_t to[BlockPlan::most_together], copy = 0;
#pragma unroll
    for (int j = 0; j < BlockPlan::most_together; ++j) to[j] = group.to + plan.part[j];
    if constexpr (Form::is_planar)
      if (plan.is_exchanged) {
        exchange(words[0], words[1]);
        exchange(words[2], words[3]);
        const bool odd = threadIdx.x & 1;
        const uint32_t other = __shfl_xor_sync(~0u, group.to, 1);
        const uint32_t even_lane = odd ? other : group.to, odd_lane = odd ? group.to : other;
        const uint32_t low = odd ? plan.part[1] : plan.part[0], high = odd ? plan.part[3] : plan.part[2];
        to[0] = even_lane + low, to[1] = odd_lane + low, to[2] = even_lane + high, to[3] = odd_lane + high;
      }
    for (uint32_t c = 0;; copy = plan.copy[c]) {  // the first copy is at 0
#pragma unroll
      for (int j = 0; j < BlockPlan::most_together; ++j)
        if (Form::is_planar || j < plan.together) store_group<bytes>(packed + to[j] + copy, words[j]);
      if (++c == plan.copies) break;
    }
  }
}

/// Blocks of a multiprocessor at once: as many as have registers enough.
template <class Form>
inline constexpr int resident_blocks = Form::is_planar ? 5 : 6;

template <class Form, int bytes>
__global__ void __launch_bounds__(BlockPlan::most_threads, resident_blocks<Form>)
    pack_kernel(const __grid_constant__ Batch batch, const __grid_constant__ BlockPlan plan) {
  __shared__ RowSlot slots[BlockPlan::most_slots + 2];
  const Block block{batch, plan, plan.blocks[blockIdx.x], reinterpret_cast<uint8_t*>(shared_chunks), slots + 1};
  const bool has_pads = __syncthreads_or(find_rows(block)), aligned = row_bits(block) % 16 == 0;
  aligned ? load_rows<true, 4>(block) : load_rows<false, Form::is_planar ? 4 : 3>(block);
  if (has_pads && !(aligned && are_alike(batch.matrix.pad))) {
    __syncthreads();
    pad_rows(block);
  }
  __syncthreads();
  if (batch.matrix.add) {
    add_to_rows(block, batch.matrix.add);
    __syncthreads();
  }
  store_groups<Form, bytes>(block);
}

/// Packed words to shared memory.
template <class Form, int bytes>
__device__ __forceinline__ void load_groups(const Block& block) {
  const BlockPlan& plan = block.plan;
  const uint8_t* const from = block.item().packed + block.begin.to;
  for (uint32_t i = threadIdx.x; i < plan.group_count; i += Block::threads()) {
    const PlanGroup group = plan.groups[i];
    typename Form::Words words[BlockPlan::most_together];
#pragma unroll
    for (int j = 0; j < BlockPlan::most_together; ++j)
      if (Form::is_planar || j < plan.together)
        words[j] = load_group<bytes, typename Form::Words>(from + group.to + plan.part[j]);
    Form::unpack(plan, words, block.bytes, group.base);
  }
}

/// Whether all words are equal. Groups of one byte may differ in the bytes that they do not have.
template <class Words>
__device__ __forceinline__ bool are_equal(const Words& x, const Words& y) {
  uint32_t differs = 0;
  for (size_t q = 0; q < sizeof(Words) / 4; ++q) differs |= x.word[q] ^ y.word[q];
  return differs == 0;
}

/// Compares copies with what the source bytes in shared memory make. The copy that was read may differ if groups have
/// copies within them.
template <class Form, int bytes>
__device__ __forceinline__ void check_copies(const Block& block) {
  const BlockPlan& plan = block.plan;
  for (uint32_t i = threadIdx.x; i < plan.group_count; i += Block::threads()) {
    const PlanGroup group = plan.groups[i];
    typename Form::Words expected[BlockPlan::most_together];
    Form::pack(plan, block.bytes, group.base, expected);
    for (uint32_t c = plan.is_repeated ? 0 : 1; c < plan.copies; ++c)
#pragma unroll
      for (int j = 0; j < BlockPlan::most_together; ++j) {
        if (j >= plan.together) break;
        const uint32_t at = block.begin.to + group.to + plan.part[j] + plan.copy[c];
        const auto is = load_group<bytes, typename Form::Words>(block.item().packed + at);
        if (are_equal(is, expected[j])) continue;
        for (int b = 0; b < bytes; ++b)
          if (uint8_t((is.word[b / 4] ^ expected[j].word[b / 4]) >> b % 4 * 8))
            report(block.item().found + 1, (unsigned long long)(at + uint32_t(b)) << 16);
      }
  }
}

template <class Form, int bytes>
__global__ void __launch_bounds__(BlockPlan::most_threads, resident_blocks<Form>)
    unpack_kernel(const __grid_constant__ Batch batch, const __grid_constant__ BlockPlan plan) {
  __shared__ RowSlot slots[BlockPlan::most_slots + 2];
  const Block block{batch, plan, plan.blocks[blockIdx.x], reinterpret_cast<uint8_t*>(shared_chunks), slots + 1};
  if (plan.form == PlanForm::shared_words) {
    for (uint32_t i = threadIdx.x; i < plan.shared_bytes / 16; i += Block::threads()) shared_chunks[i] = {};
    __syncthreads();
  }
  load_groups<Form, bytes>(block);
  find_rows(block);
  __syncthreads();
  if (plan.copies > 1 || plan.is_repeated) {
    check_copies<Form, bytes>(block);
    __syncthreads();
  }
  if (batch.matrix.add) {
    add_to_rows(block, uint8_t(-batch.matrix.add));
    __syncthreads();
  }
  store_rows(block);
}

}  // namespace mxfp4
