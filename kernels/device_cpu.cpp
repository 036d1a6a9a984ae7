#include <cstdlib>
#include <new>
#include <vector>

#include "kernels/device.h"
#include "kernels/stage.h"
#include "kernels/strip.h"

namespace mxfp4 {
namespace {

template <class L>
void pack_matrix(const Matrix& m, uint8_t* packed, std::vector<uint8_t>& strip) {
  const Shape s = storage<L>(m.padded);
  if constexpr (is_plain<L>) {
    stage(m, s, 0, s.n, packed);
  } else {
    strip.resize(L::tile_n * s.b);
    for (int64_t tn = 0; tn < s.n / L::tile_n; ++tn) {
      stage(m, s, tn * L::tile_n, (tn + 1) * L::tile_n, strip.data());
      pack_strip_tables<L>(strip.data(), s, tn, packed);
    }
  }
}

template <class L>
PadReport unpack_matrix(const uint8_t* packed, const MutableMatrix& m, std::vector<uint8_t>& strip) {
  const Shape s = storage<L>(m.padded);
  PadReport report;
  if constexpr (is_plain<L>) {
    unstage(m, s, 0, s.n, packed, report);
  } else {
    strip.resize(L::tile_n * s.b);
    for (int64_t tn = 0; tn < s.n / L::tile_n; ++tn) {
      unpack_strip_tables<L>(packed, s, tn, strip.data());
      unstage(m, s, tn * L::tile_n, (tn + 1) * L::tile_n, strip.data(), report);
    }
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
