// mxfp4_mode_bench [NAME]: how fast one thread of the CPU packs and unpacks each layout, or those whose names hold
// NAME, and the same bytes by modes, as a layout file gives them. GB/s are bytes of the rows; the fastest of five of
// one matrix, with the driver that MXFP4_PACK_DRIVER names.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "kernels/pack/cpu/driver.h"
#include "kernels/pack/device.h"
#include "tests/bench/bench_rows.h"

using namespace mxfp4;

namespace {

constexpr int repeats = 5;
constexpr Layer layer = {"", 1, 2944, 3072, 5888, 3072, false};

template <class Work>
double least_seconds(Work work) {
  double least = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return least;
}

/// Whether the rows came back.
bool measure(const Row& row) {
  const auto cpu = open_cpu();
  const Shape s = {layer.padded_n, row.padded};
  const int64_t bytes = s.n * s.b;
  uint8_t *const from = cpu->allocate(bytes), *const back = cpu->allocate(bytes),
                 *const packed = cpu->allocate(packed_bytes(row.layout, s));
  for (int64_t i = 0; i < bytes; ++i) from[i] = uint8_t(uint64_t(i) * 2654435761u >> 13);
  Matrix m{{{from, s.b}}, 1, s, s, {}, {}, 0};
  const PackItem pack{row.layout, m, packed};
  const UnpackItem unpack{row.layout, packed, {{{back, s.b}}, 1, s, s, {}, {}, 0}};
  PadReport report;
  const double in = least_seconds([&] { cpu->pack({&pack, 1}); });
  const double out = least_seconds([&] { cpu->unpack({&unpack, 1}, {&report, 1}); });
  const bool right = std::memcmp(from, back, size_t(bytes)) == 0 && report.wrong + report.copies.wrong == 0;
  std::printf("%-30s%8.2f%8.2f%s\n", row.name.c_str(), double(bytes) / in / 1e9, double(bytes) / out / 1e9,
              right ? "" : "  ROWS DIFFER");
  for (uint8_t* memory : {from, back, packed}) cpu->release(memory);
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  bool right = true;
  std::printf("driver %s, GB/s\n%-30s%8s%8s\n", chosen_driver().name, "layout", "pack", "unpack");
  for (const Row& row : rows_of(layer, argc > 1 ? argv[1] : "")) right &= measure(row);
  return right ? 0 : 1;
}
