#include <cstdlib>
#include <new>
#include <vector>

#include "kernels/device.h"
#include "kernels/strip.h"

namespace mxfp4 {
namespace {

void add_bytes(uint8_t* p, int64_t n, uint8_t add) {
  if (add == 0) return;
  for (int64_t i = 0; i < n; ++i) p[i] = uint8_t(p[i] + add);
}

/// Row n of the storage, s.b bytes at `to`: the checkpoint's bytes, then the pads, `add` applied.
void stage_row(const Matrix& m, Shape s, int64_t n, uint8_t* to) {
  int64_t real = 0;
  const RowSource from = n < m.padded.n ? m.source(n) : RowSource{0, m.real.n};
  if (n < m.padded.n && from.row < m.real.n) {
    real = m.real.b;
    std::memcpy(to, m.view[from.view].data + from.row * m.view[from.view].stride, real);
  }
  if (real < m.padded.b && n < m.padded.n) std::memset(to + real, m.pad_byte(n, real), m.padded.b - real);
  const int64_t end = n < m.padded.n ? m.padded.b : 0;
  std::memset(to + end, m.pad.storage, s.b - end);
  add_bytes(to, s.b, m.add);
}

/// The inverse: the real bytes go to the checkpoint's row, the pads are compared.
void unstage_row(const MutableMatrix& m, Shape s, int64_t n, uint8_t* from, PadReport& report) {
  add_bytes(from, s.b, uint8_t(-m.add));
  int64_t real = 0;
  if (n < m.padded.n) {
    const RowSource to = m.source(n);
    if (to.row < m.real.n) {
      real = m.real.b;
      std::memcpy(m.view[to.view].data + to.row * m.view[to.view].stride, from, real);
    }
  }
  for (int64_t b = real; b < s.b; ++b) {
    const uint8_t expected = m.pad_byte(n, b);
    if (from[b] == expected) continue;
    if (report.wrong++ == 0) {
      report.n = n, report.b = b;
      report.is = uint8_t(from[b] + m.add), report.expected = uint8_t(expected + m.add);
    }
  }
}

template <class L>
void pack_matrix(const Matrix& m, uint8_t* packed, std::vector<uint8_t>& strip) {
  const Shape s = storage<L>(m.padded);
  strip.resize(L::tile_n * s.b);
  for (int64_t tn = 0; tn < s.n / L::tile_n; ++tn) {
    for (int64_t r = 0; r < L::tile_n; ++r) stage_row(m, s, tn * L::tile_n + r, strip.data() + r * s.b);
    pack_strip_tables<L>(strip.data(), s, tn, packed);
  }
}

template <class L>
PadReport unpack_matrix(const uint8_t* packed, const MutableMatrix& m, std::vector<uint8_t>& strip) {
  const Shape s = storage<L>(m.padded);
  strip.resize(L::tile_n * s.b);
  PadReport report;
  for (int64_t tn = 0; tn < s.n / L::tile_n; ++tn) {
    unpack_strip_tables<L>(packed, s, tn, strip.data());
    for (int64_t r = 0; r < L::tile_n; ++r) unstage_row(m, s, tn * L::tile_n + r, strip.data() + r * s.b, report);
  }
  return report;
}

class Cpu final : public Device {
 public:
  std::string name() const override { return "cpu"; }
  uint8_t* allocate(int64_t bytes) override {
    void* p = std::aligned_alloc(4096, size_t(round_up(bytes, 4096)));
    if (!p) throw std::bad_alloc();
    return static_cast<uint8_t*>(p);
  }
  void release(uint8_t* memory) override { std::free(memory); }
  void pack(std::span<const PackItem> items) override {
    for (const PackItem& item : items)
      std::visit([&](auto l) { pack_matrix<decltype(l)>(item.matrix, item.packed, strip_); }, item.layout);
  }
  void unpack(std::span<const UnpackItem> items, std::span<PadReport> reports) override {
    for (size_t i = 0; i < items.size(); ++i)
      std::visit([&](auto l) { reports[i] = unpack_matrix<decltype(l)>(items[i].packed, items[i].matrix, strip_); },
                 items[i].layout);
  }

 private:
  std::vector<uint8_t> strip_;
};

}  // namespace

std::unique_ptr<Device> open_cpu() { return std::make_unique<Cpu>(); }

}  // namespace mxfp4
