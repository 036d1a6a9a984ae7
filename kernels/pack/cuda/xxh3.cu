// XXH3 adds up eight 64-bit sums over the sixteen stripes of a block of 1024 bytes, then scrambles them. Only the
// scrambling is a chain: blocks are summed by all of the GPU, and eight lanes an item scramble one sum each, block
// after block. Facts: the XXH3 specification (xxHash 0.8).
#include <algorithm>

#include "kernels/pack/cuda/check.h"
#include "kernels/pack/cuda/xxh3.h"

namespace mxfp4 {
namespace {

constexpr int block_bytes = 1024, stripe = 64;
constexpr uint64_t prime32_1 = 0x9E3779B1, prime32_2 = 0x85EBCA77, prime32_3 = 0xC2B2AE3D;
constexpr uint64_t prime64_1 = 0x9E3779B185EBCA87, prime64_2 = 0xC2B2AE3D27D4EB4F, prime64_3 = 0x165667B19E3779F9,
                   prime64_4 = 0x85EBCA77C2B2AE63, prime64_5 = 0x27D4EB2F165667C5;

/// The default secret of 192 bytes. The offset of each use follows.
__constant__ const uint64_t secret[24] = {
    0xBE4BA423396CFEB8, 0x1CAD21F72C81017C, 0xDB979083E96DD4DE, 0x1F67B3B7A4A44072, 0x78E5C0CC4EE679CB,
    0x2172FFCC7DD05A82, 0x8E2443F7744608B8, 0x4C263A81E69035E0, 0xCB00C391BB52283C, 0xA32E531B8B65D088,
    0x4EF90DA297486471, 0xD8ACDEA946EF1938, 0x3F349CE33F76FAA8, 0x1D4F0BC7C7BBDCF9, 0x3159B4CD4BE0518A,
    0x647378D9C97E9FC8, 0xC3EBD33483ACC5EA, 0xEB6313FAFFA081C5, 0x49DAF0B751DD0D17, 0x9E68D429265516D3,
    0xFCA1477D58BE162B, 0xCE31D07AD1B8F88F, 0x280416958F3ACB45, 0x7E404BBBCAFBD7AF};
constexpr int scramble_key = 128, last_stripe_key = 121, low_key = 11, high_key = 117;

__constant__ const uint64_t initial[8] = {prime32_3, prime64_1, prime64_2, prime64_3,
                                          prime64_4, prime32_2, prime64_5, prime32_1};

/// Eight bytes of the secret from byte `at` on.
__device__ __forceinline__ uint64_t secret_at(int at) {
  const int bits = at % 8 * 8;
  return bits ? secret[at / 8] >> bits | secret[at / 8 + 1] << (64 - bits) : secret[at / 8];
}

__device__ __forceinline__ uint64_t halves_product(uint64_t x) { return uint64_t(uint32_t(x)) * (x >> 32); }

struct Batch {
  static constexpr int max_items = 96;
  struct Item {
    XxhItem item;
    uint64_t* sums;  // eight of each whole block
  } items[max_items];
};

/// Blocks that are scrambled: all but the last.
__host__ __device__ constexpr int64_t whole_blocks(int64_t bytes) { return (bytes - 1) / block_bytes; }
static_assert(xxh_scratch(5 * block_bytes + 1) == whole_blocks(5 * block_bytes + 1) * stripe);

constexpr int sum_threads = 256, sum_warps = sum_threads / 32;

/// blockIdx.y: the item. A warp sums a block: lane l adds bytes 16 (l % 4) of stripes l / 4 and l / 4 + 8.
__global__ void __launch_bounds__(sum_threads) sum_kernel(const __grid_constant__ Batch batch) {
  const Batch::Item& item = batch.items[blockIdx.y];
  const int lane = threadIdx.x % 32, s = lane / 4, pair = lane % 4;
  uint64_t key[2][2];
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < 2; ++i) key[half][i] = secret[s + 8 * half + 2 * pair + i];
  const int64_t blocks = whole_blocks(item.item.bytes);
  for (int64_t b = blockIdx.x * int64_t(sum_warps) + threadIdx.x / 32; b < blocks;
       b += int64_t(gridDim.x) * sum_warps) {
    const ulonglong2* const data = reinterpret_cast<const ulonglong2*>(item.item.data + b * block_bytes) + lane;
    const ulonglong2 x = __ldg(data), y = __ldg(data + 32);
    const uint64_t even = x.y + y.y + halves_product(x.x ^ key[0][0]) + halves_product(y.x ^ key[1][0]);
    const uint64_t odd = x.x + y.x + halves_product(x.y ^ key[0][1]) + halves_product(y.y ^ key[1][1]);
    const bool takes_odd = lane & 16;
    uint64_t sum = (takes_odd ? odd : even) + __shfl_xor_sync(~0u, takes_odd ? even : odd, 16);
    sum += __shfl_xor_sync(~0u, sum, 8);
    sum += __shfl_xor_sync(~0u, sum, 4);
    if ((lane & 12) == 0) item.sums[b * 8 + 2 * pair + takes_odd] = sum;
  }
}

constexpr int lanes = 8, chains = 4;  // of an item; items of a warp

/// One of an item's eight sums.
struct Chain {
  int lane;
  uint32_t mask;  // of the item's lanes
  uint64_t value, key;
  __device__ __forceinline__ Chain()
      : lane(threadIdx.x % lanes),
        mask(0xFFu << (threadIdx.x - lane)),
        value(initial[lane]),
        key(secret_at(scramble_key + 8 * lane)) {}

  __device__ __forceinline__ void scramble(uint64_t sum) {
    value += sum;
    value = (value ^ value >> 47 ^ key) * prime32_1;
  }
  /// The stripe at `data`, anywhere.
  __device__ __forceinline__ void take(const uint8_t* data, int key_at) {
    uint64_t x = 0;
    for (int i = 0; i < 8; ++i) x |= uint64_t(data[8 * lane + i]) << 8 * i;
    value += __shfl_xor_sync(mask, x, 1) + halves_product(x ^ secret_at(key_at + 8 * lane));
  }
  /// On every lane.
  __device__ __forceinline__ uint64_t merged(int key_at, uint64_t start) const {
    const uint64_t x = value ^ secret_at(key_at + 8 * lane), y = __shfl_xor_sync(mask, x, 1);
    uint64_t h = x * y ^ __umul64hi(x, y);
    h += __shfl_xor_sync(mask, h, 2);
    h += __shfl_xor_sync(mask, h, 4);
    h += start;
    h ^= h >> 37;
    h *= 0x165667919E3779F9;
    return h ^ h >> 32;
  }
};

/// A warp processes `chains` items. Sums are loaded a batch ahead of the chain, which is longer than the latency of
/// loads.
__global__ void __launch_bounds__(lanes* chains) chain_kernel(const __grid_constant__ Batch batch, int items) {
  const int i = int(blockIdx.x) * chains + int(threadIdx.x) / lanes;
  if (i >= items) return;
  constexpr int depth = 16;
  const auto [data, bytes, to] = batch.items[i].item;
  const int64_t blocks = whole_blocks(bytes);
  Chain chain;
  const uint64_t* const sums = batch.items[i].sums + chain.lane;
  uint64_t now[depth], next[depth];
  const auto load = [&](uint64_t(&x)[depth], int64_t first) {
#pragma unroll
    for (int k = 0; k < depth; ++k) x[k] = first + k < blocks ? sums[(first + k) * 8] : 0;
  };
  load(now, 0);
  for (int64_t b = 0; b < blocks; b += depth) {
    load(next, b + depth);
#pragma unroll
    for (int k = 0; k < depth; ++k)
      if (b + k < blocks) chain.scramble(now[k]);
#pragma unroll
    for (int k = 0; k < depth; ++k) now[k] = next[k];
  }
  const uint8_t* const last = data + blocks * block_bytes;
  for (int s = 0; s < int(bytes - 1 - blocks * block_bytes) / stripe; ++s) chain.take(last + s * stripe, 8 * s);
  chain.take(data + bytes - stripe, last_stripe_key);
  const Xxh128 hash{chain.merged(low_key, uint64_t(bytes) * prime64_1),
                    chain.merged(high_key, ~(uint64_t(bytes) * prime64_2))};
  if (chain.lane == 0) *to = hash;
}

}  // namespace

void launch_xxh3(std::span<const XxhItem> items, uint8_t* scratch, cudaStream_t stream) {
  while (!items.empty()) {
    Batch batch;
    const size_t count = std::min(items.size(), size_t(Batch::max_items));
    int64_t most = 0;
    for (size_t i = 0; i < count; ++i) {
      batch.items[i] = {items[i], reinterpret_cast<uint64_t*>(scratch)};
      scratch += xxh_scratch(items[i].bytes);
      most = std::max(most, whole_blocks(items[i].bytes));
    }
    const auto across = unsigned(std::min<int64_t>((most + sum_warps - 1) / sum_warps, 512));
    if (most > 0) sum_kernel<<<dim3(across, unsigned(count)), sum_threads, 0, stream>>>(batch);
    chain_kernel<<<unsigned((count + chains - 1) / chains), lanes * chains, 0, stream>>>(batch, int(count));
    MXFP4_CUDA(cudaGetLastError());
    items = items.subspan(count);
  }
}

}  // namespace mxfp4
