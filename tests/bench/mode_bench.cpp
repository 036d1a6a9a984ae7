// mxfp4_mode_bench [NAME [PADS]]: measures how fast one CPU thread packs and unpacks each layout, or those whose names
// contain NAME. The same bytes are also packed by modes, the form of layout files. MXFP4_PACK_DRIVER names the driver.
// GB/s count bytes of the rows. Figures are medians over rounds in which both ways alternate; the ratio is the median
// of the rounds' ratios. PADS: the sixteenths of each row that are pads (0).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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
    in_.push_back(seconds([&] { cpu_->pack({&pack, 1}); }));
    out_.push_back(seconds([&] { cpu_->unpack({&unpack, 1}, {&report, 1}); }));
    right_ &= report.wrong + report.copies.wrong == 0 && std::memcmp(from_, back_, size_t(bytes())) == 0;
  }
  const std::vector<double>& in() const { return in_; }
  const std::vector<double>& out() const { return out_; }
  bool is_right() const { return right_; }

 private:
  const Layout layout_;
  const Shape s_, real_;
  const std::unique_ptr<Device> cpu_ = open_cpu();
  uint8_t *const from_ = cpu_->allocate(bytes()), *const back_ = cpu_->allocate(bytes()),
                 *const packed_ = cpu_->allocate(packed_bytes(layout_, s_));
  std::vector<double> in_, out_;
  bool right_ = true;
};

double share(const std::vector<double>& whole, const std::vector<double>& part) {
  std::vector<double> shares;
  for (size_t i = 0; i < whole.size(); ++i) shares.push_back(whole[i] / part[i]);
  return median(shares);
}

/// Whether the rows came back. other: by modes, if `row` is built in.
bool measure(const Row& row, const Row* other, int pads) {
  Case one(row, pads);
  std::unique_ptr<Case> modes = other ? std::make_unique<Case>(*other, pads) : nullptr;
  for (int i = 0; i < rounds; ++i) {
    one.round();
    if (modes) modes->round();
  }
  const auto speed = [&](const std::vector<double>& times) { return double(one.bytes()) / median(times) / 1e9; };
  std::printf("%-30s%8.2f%8.2f", row.name.c_str(), speed(one.in()), speed(one.out()));
  if (modes)
    std::printf("%10.2f%8.2f%10.2f%8.2f", speed(modes->in()), speed(modes->out()), share(one.in(), modes->in()),
                share(one.out(), modes->out()));
  const bool right = one.is_right() && (!modes || modes->is_right());
  std::printf("%s\n", right ? "" : "  ROWS DIFFER");
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  const int pads = argc > 2 ? std::atoi(argv[2]) : 0;
  bool right = true;
  std::printf("driver %s, GB/s\n%-30s%8s%8s%18s%18s\n", chosen_driver().name, "layout", "pack", "unpack", "by modes",
              "share");
  const std::vector<Row> rows = rows_of(layer, argc > 1 ? argv[1] : "");
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool pair = !rows[i].modes;
    right &= measure(rows[i], pair ? &rows[i + 1] : nullptr, pads);
    i += pair;
  }
  return right ? 0 : 1;
}
