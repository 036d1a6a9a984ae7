// mxfp4_mode_bench [NAME [PADS]]: measures how fast one CPU thread packs and unpacks each layout, or those whose names
// contain NAME; also layouts that only files have. MXFP4_PACK_DRIVER names the driver. GB/s count bytes of the rows in
// the thread's own time, and are medians; shares are of memcpy. PADS: the sixteenths of each row that are pads (0).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <vector>

#include "kernels/pack/cpu/driver.h"
#include "kernels/pack/device.h"
#include "tests/bench/bench_rows.h"

using namespace mxfp4;

namespace {

constexpr int rounds = 9;
constexpr Layer layer = {"", 1, 2944, 3072, 5888, 3072, false};

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + int64_t(x.size()) / 2, x.end());
  return x[x.size() / 2];
}

template <class Work>
double seconds(Work work) {
  const auto now = [] {
    timespec t = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return double(t.tv_sec) + double(t.tv_nsec) / 1e9;
  };
  const double start = now();
  work();
  return now() - start;
}

/// One matrix of a row's layout, packed and unpacked again.
class Case {
 public:
  Case(const Row& row, int pads)
      : layout_(row.layout), s_{layer.padded_n, row.padded}, real_{s_.n, (s_.b * (16 - pads) + 15) / 16} {
    for (int64_t i = 0; i < bytes(); ++i) from_[i] = uint8_t(uint64_t(i) * 2654435761u >> 13);
  }
  ~Case() {
    for (uint8_t* memory : {from_, back_, packed_}) cpu_->release(memory);
  }
  Case(const Case&) = delete;
  int64_t bytes() const { return real_.n * real_.b; }
  void round() {
    const PackItem pack{layout_, {{{from_, real_.b}}, 1, real_, s_, {}, {}, 0}, packed_};
    const UnpackItem unpack{layout_, packed_, {{{back_, real_.b}}, 1, real_, s_, {}, {}, 0}};
    PadReport report;
    copy_.push_back(seconds([&] { std::memcpy(back_, from_, size_t(bytes())); }));
    in_.push_back(seconds([&] { cpu_->pack({&pack, 1}); }));
    out_.push_back(seconds([&] { cpu_->unpack({&unpack, 1}, {&report, 1}); }));
    right_ &= report.wrong + report.copies.wrong == 0 && std::memcmp(from_, back_, size_t(bytes())) == 0;
  }
  /// Prints the speeds. Returns whether the rows came back.
  bool print(const char* name) const {
    const double copy = median(copy_), in = median(in_), out = median(out_), giga = double(bytes()) / 1e9;
    std::printf("%-30s%8.2f%8.2f%10.2f%8.2f%s\n", name, giga / in, giga / out, copy / in, copy / out,
                right_ ? "" : "  ROWS DIFFER");
    return right_;
  }

 private:
  const Layout layout_;
  const Shape s_, real_;
  const std::unique_ptr<Device> cpu_ = open_cpu();
  uint8_t *const from_ = cpu_->allocate(bytes()), *const back_ = cpu_->allocate(bytes()),
                 *const packed_ = cpu_->allocate(packed_bytes(layout_, s_));
  std::vector<double> copy_, in_, out_;
  bool right_ = true;
};

}  // namespace

int main(int argc, char** argv) {
  const int pads = argc > 2 ? std::atoi(argv[2]) : 0;
  bool right = true;
  std::printf("driver %s, GB/s\n%-30s%8s%8s%18s\n", chosen_driver().name, "layout", "pack", "unpack",
              "share of memcpy");
  for (const Row& row : rows_of(layer, argc > 1 ? argv[1] : "")) {
    if (row.name == in_file) continue;
    Case one(row, pads);
    for (int i = 0; i < rounds; ++i) one.round();
    right &= one.print(row.name.c_str());
  }
  return right ? 0 : 1;
}
