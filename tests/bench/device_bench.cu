// mxfp4_device_bench [REPEATS [NAME]]: how fast the GPU packs and unpacks each layout, or those whose names hold NAME,
// in its own memory, and through PCIe.
//
// Each row packs and unpacks the w13 of a whole layer in one launch, with gate and up as in the checkpoint. It runs
// over as many layers as fit, and checks that the rows are restored. Below each layout are the same bytes by its modes,
// the form of layout files; at the end modes without a built-in layout. GB/s count bytes read and written. The next
// column is the share of a device-to-device copy of as many bytes, measured in turn. A figure is the median of its
// repeats.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/pack/cuda/check.h"
#include "kernels/pack/cuda/launch.h"
#include "tests/bench/bench_rows.h"

using namespace mxfp4;

namespace {

constexpr Layer layers[] = {{"128 experts, 5760x2880 padded to 5888x3072", 128, 2880, 2880, 5888, 3072, true},
                            {"256 experts, 4096x4096", 256, 2048, 4096, 4096, 4096, false}};

__global__ void fill_kernel(uint32_t* words, int64_t n, uint32_t seed) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) {
    uint32_t x = uint32_t(i) * 2654435761u ^ seed;
    x ^= x >> 15, x *= 0x85EBCA6Bu, x ^= x >> 13;
    words[i] = x;
  }
}

__global__ void count_different_kernel(const uint32_t* a, const uint32_t* b, int64_t n, unsigned long long* different) {
  unsigned long long mine = 0;
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x)
    mine += a[i] != b[i];
  if (mine) atomicAdd(different, mine);
}

class Timer {
 public:
  Timer() {
    MXFP4_CUDA(cudaEventCreate(&begin_));
    MXFP4_CUDA(cudaEventCreate(&end_));
  }
  ~Timer() { cudaEventDestroy(begin_), cudaEventDestroy(end_); }
  template <class Work>
  double seconds(Work work) {
    MXFP4_CUDA(cudaEventRecord(begin_));
    work();
    MXFP4_CUDA(cudaEventRecord(end_));
    MXFP4_CUDA(cudaEventSynchronize(end_));
    float milliseconds = 0;
    MXFP4_CUDA(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t begin_, end_;
};

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
  return v[v.size() / 2];
}

/// Device memory for the largest layer, rows and packed, and the rows again.
struct Memory {
  int64_t bytes;  // of each of the three
  uint8_t *rows, *packed, *back;
  PadFound* found;
  unsigned long long* different;
};

/// One layer's w13 in one layout, `sets` times in memory so that a set is gone from the cache when its turn comes
/// again.
struct Work {
  int64_t bytes_in, bytes_out, stride;  // of a set; sets are `stride` apart
  std::vector<std::vector<PackItem>> packs;
  std::vector<std::vector<UnpackItem>> unpacks;
};

Work make_work(const Layer& layer, const Row& row, const Memory& memory) {
  const Layout& layout = row.layout;
  const int64_t b = row.real, size = 2 * layer.rows * b;
  Matrix m;
  m.views = 2, m.real = {layer.rows, b};
  m.padded = {layer.padded_n, row.padded};
  const int64_t packed = packed_bytes(layout, m.padded);
  const int64_t second = layer.in_turn ? b : layer.rows * b, row_stride = layer.in_turn ? 2 * b : b;
  Work work{layer.experts * size, layer.experts * packed, layer.experts * round_up(std::max(size, packed), 16), {}, {}};
  const int64_t sets = std::min<int64_t>(memory.bytes / work.stride, 16);
  for (int64_t set = 0; set < sets; ++set) {
    work.packs.emplace_back();
    work.unpacks.emplace_back();
    for (int64_t e = 0; e < layer.experts; ++e) {
      const int64_t at = set * work.stride + e * size;
      MutableMatrix to{{}, 2, m.real, m.padded, {}, {}, 0};
      for (int v : {0, 1}) {
        m.view[v] = {memory.rows + at + v * second, row_stride};
        to.view[v] = {memory.back + at + v * second, row_stride};
      }
      uint8_t* const p = memory.packed + set * work.stride + e * round_up(packed, 16);
      work.packs.back().push_back({layout, m, p});
      work.unpacks.back().push_back({layout, p, to});
    }
  }
  return work;
}

/// Whether the rows of every set came back.
bool rows_are_back(const Work& work, const Memory& memory) {
  unsigned long long different = 0;
  MXFP4_CUDA(cudaMemset(memory.different, 0, 8));
  for (size_t set = 0; set < work.packs.size(); ++set)
    count_different_kernel<<<1024, 256>>>(reinterpret_cast<uint32_t*>(memory.rows + set * work.stride),
                                          reinterpret_cast<uint32_t*>(memory.back + set * work.stride),
                                          work.bytes_in / 4, memory.different);
  MXFP4_CUDA(cudaMemcpy(&different, memory.different, 8, cudaMemcpyDeviceToHost));
  return different == 0;
}

bool measure(const Layer& layer, const Row& row, const Memory& memory, Timer& timer, int repeats) {
  const Work work = make_work(layer, row, memory);
  Plans plans;
  const int64_t bytes = work.bytes_in + work.bytes_out;
  MXFP4_CUDA(cudaMemset(memory.packed, 0xEE, size_t(memory.bytes)));
  MXFP4_CUDA(cudaMemset(memory.back, 0xEE, size_t(memory.bytes)));
  std::vector<double> copying, packing, unpacking;
  for (int i = 0; i <= repeats; ++i) {
    const double c = timer.seconds([&] {
      for (size_t set = 0; set < work.packs.size(); ++set)
        MXFP4_CUDA(cudaMemcpyAsync(memory.packed + set * work.stride, memory.rows + set * work.stride,
                                   size_t(bytes / 2), cudaMemcpyDeviceToDevice, nullptr));
    });
    const double p = timer.seconds([&] {
      for (const auto& items : work.packs) launch_pack(items, plans, nullptr);
    });
    const double u = timer.seconds([&] {
      for (const auto& items : work.unpacks) launch_unpack(items, plans, memory.found, nullptr);
    });
    if (i > 0) copying.push_back(c), packing.push_back(p), unpacking.push_back(u);
  }
  const bool right = rows_are_back(work, memory);
  const double all = double(bytes) * double(work.packs.size()) / 1e9;
  const double copy = median(copying), pack = median(packing), unpack = median(unpacking);
  std::printf("%-30s%10.1f%8.0f%8.0f%7.1f%%%8.0f%7.1f%%%s\n", row.name.c_str(), double(bytes) / 1e6, all / copy,
              all / pack, 100 * copy / pack, all / unpack, 100 * copy / unpack, right ? "" : "  ROWS DIFFER");
  return right;
}

bool measure_memory(int repeats, std::string_view name) {
  bool right = true;
  int64_t most = 0;
  for (const Layer& layer : layers) most = std::max(most, layer.experts * layer.padded_n * layer.padded_columns / 2);
  Memory memory;
  memory.bytes = most;
  for (uint8_t** p : {&memory.rows, &memory.packed, &memory.back}) MXFP4_CUDA(cudaMalloc(p, size_t(most)));
  MXFP4_CUDA(cudaMalloc(&memory.found, 2 * Batch::max_items * sizeof(PadFound)));
  MXFP4_CUDA(cudaMemset(memory.found, 0, 2 * Batch::max_items * sizeof(PadFound)));
  MXFP4_CUDA(cudaMalloc(&memory.different, 8));
  fill_kernel<<<4096, 256>>>(reinterpret_cast<uint32_t*>(memory.rows), most / 4, 1);
  Timer timer;
  for (const Layer& layer : layers) {
    std::printf("%s: GB/s read and written, share of the copy\n%-30s%10s%8s%8s%16s\n", layer.name, "layout", "MB",
                "copy", "pack", "unpack");
    for (const Row& row : rows_of(layer, name)) right &= measure(layer, row, memory, timer, repeats);
  }
  for (void* p : {static_cast<void*>(memory.rows), static_cast<void*>(memory.packed), static_cast<void*>(memory.back),
                  static_cast<void*>(memory.found), static_cast<void*>(memory.different)})
    MXFP4_CUDA(cudaFree(p));
  return right;
}

template <class Work>
double wall_seconds(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Device::pack and unpack from and to page-locked memory, next to the copies to and from the device alone.
void measure_pipeline(int repeats) {
  constexpr int64_t experts = 64, n = 5888, b = 1536, size = n * b;
  const auto device = open_cuda(0);
  uint8_t *const rows = device->allocate(experts * size), *const packed = device->allocate(experts * size);
  for (int64_t i = 0; i < experts * size; ++i) rows[i] = uint8_t(i * 31 >> 3);
  std::vector<PackItem> packs;
  std::vector<UnpackItem> unpacks;
  std::vector<PadReport> reports(experts);
  for (int64_t e = 0; e < experts; ++e) {
    Matrix m{{{rows + e * size, b}}, 1, {n, b}, {n, b}, {}, {}, 0};
    packs.push_back({MarlinCodes{}, m, packed + e * size});
    unpacks.push_back({MarlinCodes{}, packed + e * size, {{{rows + e * size, b}}, 1, {n, b}, {n, b}, {}, {}, 0}});
  }
  uint8_t *in, *out;
  MXFP4_CUDA(cudaMalloc(&in, size));
  MXFP4_CUDA(cudaMalloc(&out, size));
  cudaStream_t up, down;
  MXFP4_CUDA(cudaStreamCreateWithFlags(&up, cudaStreamNonBlocking));
  MXFP4_CUDA(cudaStreamCreateWithFlags(&down, cudaStreamNonBlocking));
  std::vector<double> copying, packing, unpacking;
  for (int i = 0; i <= repeats; ++i) {
    const double c = wall_seconds([&] {
      for (int64_t e = 0; e < experts; ++e) {
        MXFP4_CUDA(cudaMemcpyAsync(in, rows + e * size, size, cudaMemcpyHostToDevice, up));
        MXFP4_CUDA(cudaMemcpyAsync(packed + e * size, out, size, cudaMemcpyDeviceToHost, down));
      }
      MXFP4_CUDA(cudaStreamSynchronize(up));
      MXFP4_CUDA(cudaStreamSynchronize(down));
    });
    const double p = wall_seconds([&] { device->pack(packs); });
    const double u = wall_seconds([&] { device->unpack(unpacks, reports); });
    if (i > 0) copying.push_back(c), packing.push_back(p), unpacking.push_back(u);
  }
  const double bytes = double(experts * size) / 1e9;
  std::printf(
      "through PCIe, page-locked, %d x marlin.codes %dx%d: copies alone %.1f GB/s each way, pack %.1f, "
      "unpack %.1f\n",
      int(experts), int(n), int(b), bytes / median(copying), bytes / median(packing), bytes / median(unpacking));
  MXFP4_CUDA(cudaStreamDestroy(up));
  MXFP4_CUDA(cudaStreamDestroy(down));
  MXFP4_CUDA(cudaFree(in));
  MXFP4_CUDA(cudaFree(out));
  device->release(rows);
  device->release(packed);
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 9;
  if (repeats < 1) {
    std::fputs("usage: mxfp4_device_bench [REPEATS [NAME]]\n", stderr);
    return 2;
  }
  try {
    std::printf("%s\n", cuda_description().c_str());
    if (cuda_device_count() == 0) return 2;
    const bool right = measure_memory(repeats, argc > 2 ? argv[2] : "");
    measure_pipeline(repeats);
    return right ? 0 : 1;
  } catch (const DeviceError& e) {
    std::fprintf(stderr, "mxfp4_device_bench: error: %s\n", e.what());
    return 2;
  }
}
