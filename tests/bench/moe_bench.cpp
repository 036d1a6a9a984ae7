// Times of the fused MoE on this GPU beside the inference engines' own kernels.
//
//   moe_bench [--experts E] [--hidden H] [--intermediate I] [--top-k K] [--tokens M]... [FORMAT...]
//
// The engines' times are for hidden 4096, intermediate 2048, 256 experts, top-6 on one H200 (CUDA 13.0, driver 580,
// kernels built from their own sources, CUDA graph, weights cold in L2, medians).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "kernels/moe_cuda.h"

using namespace mxfp4;

namespace {

struct Named {
  const char* name;
  MoeStorage storage;
  bool mma_only = false;
};
const Named formats[] = {{"marlin", {MoeFormat::marlin}},
                         {"marlin_mma", {MoeFormat::marlin}, true},  // as before SM90
                         {"flashinfer_v2", {MoeFormat::flashinfer_v2}},
                         {"triton_hopper", {MoeFormat::triton_hopper, 256, 128, 8}},
                         {"flashinfer_v1", {MoeFormat::flashinfer_v1}}};

/// The fastest engine kernel for each batch: Marlin at 1 token, triton_kernels 3.5.1 above.
struct Peer {
  int64_t tokens;
  double microseconds;
};
const Peer best_peers[] = {{1, 59},     {4, 140},     {16, 389},    {64, 884},
                           {256, 1169}, {1024, 1641}, {4096, 3298}, {8192, 6307}};

void print_table(const Named& format, const MoeConfig& c, const std::vector<int64_t>& tokens, const GpuCeilings& gpu) {
  const bool peers = c.experts == 256 && c.hidden == 4096 && c.intermediate == 2048 && c.top_k == 6;
  const auto layer = random_moe(c, format.storage, 1);
  if (format.mma_only) layer->avoid_wgmma();
  std::printf("\n%s\n%7s %8s %10s %10s %8s %9s %7s %9s %8s\n", format.name, "tokens", "experts", "us", "floor us",
              "% floor", "GB/s", "TFLOP/s", "best peer", "ratio");
  for (const int64_t m : tokens) {
    const MoeTiming t = layer->time(m, 7);
    const double floor =
        1e6 * std::max(t.weight_bytes / gpu.bytes_per_second, t.operations / gpu.operations_per_second);
    std::printf("%7lld %8lld %10.1f %10.1f %8.1f %9.0f %7.1f", (long long)t.tokens, (long long)t.experts_hit,
                t.microseconds, floor, 100 * floor / t.microseconds, t.weight_bytes / t.microseconds * 1e-3,
                t.operations / t.microseconds * 1e-6);
    for (const Peer& p : best_peers)
      if (peers && p.tokens == m) std::printf(" %9.0f %8.2f", p.microseconds, t.microseconds / p.microseconds);
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  MoeConfig c;
  c.experts = 256, c.hidden = 4096, c.intermediate = 2048, c.top_k = 6;
  std::vector<std::string> wanted;
  std::vector<int64_t> tokens;
  for (int i = 1; i < argc; i++) {
    const std::string arg = argv[i];
    if (arg.rfind("--", 0) != 0) {
      wanted.push_back(arg);
      continue;
    }
    if (i + 1 == argc) throw std::runtime_error(arg + ": expected a number");
    const int64_t value = std::atoll(argv[++i]);
    if (arg == "--experts")
      c.experts = value;
    else if (arg == "--hidden")
      c.hidden = value;
    else if (arg == "--intermediate")
      c.intermediate = value;
    else if (arg == "--top-k")
      c.top_k = int(value);
    else if (arg == "--tokens")
      tokens.push_back(value);
    else
      throw std::runtime_error(arg + ": no such option");
  }
  c.padded_hidden = (c.hidden + 127) / 128 * 128, c.padded_intermediate = (c.intermediate + 127) / 128 * 128;
  c.limit = 10;
  if (tokens.empty())
    for (const Peer& p : best_peers) tokens.push_back(p.tokens);
  const GpuCeilings gpu = measure_gpu();
  std::printf("%s: copy %.0f GB/s (read + written), wgmma %.0f TFLOP/s\n", gpu.name.c_str(),
              gpu.bytes_per_second * 1e-9, gpu.operations_per_second * 1e-12);
  std::printf("hidden %lld, intermediate %lld, experts %lld, top-%d\n", (long long)c.hidden, (long long)c.intermediate,
              (long long)c.experts, c.top_k);
  for (const Named& format : formats)
    if (wanted.empty() || std::count(wanted.begin(), wanted.end(), format.name)) print_table(format, c, tokens, gpu);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "moe_bench: %s\n", e.what());
  return 2;
}
