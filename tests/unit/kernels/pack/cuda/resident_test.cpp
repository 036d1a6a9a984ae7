// Packs matrices in GPU memory on the caller's stream.
#include "kernels/pack/resident.h"

#include "tests/support/mode_cases.h"

using namespace mxfp4;

namespace {

/// A device that packs in memory that the GPU can access; the CPU does all other work.
class InPlace final : public Device {
 public:
  std::string name() const override { return "in place"; }
  uint8_t* allocate(int64_t bytes) override { return cpu_->allocate(bytes); }
  void release(uint8_t* memory) override { cpu_->release(memory); }
  void unpack(std::span<const UnpackItem> items, std::span<PadReport> reports) override {
    cpu_->unpack(items, reports);
  }
  void compare(std::span<const CompareItem> items, std::span<CompareReport> reports) override {
    cpu_->compare(items, reports);
  }

  void pack(std::span<const PackItem> items, std::span<Checksum>) override {
    int64_t bytes = 0;
    for (const PackItem& item : items) bytes += bytes_of(item);
    uint8_t* const memory = gpu_->allocate(bytes);
    std::vector<PackItem> there;
    for (uint8_t* at = memory; const PackItem& item : items) {
      there.push_back(moved(item, at));
      at += bytes_of(item);
    }
    {
      Resident resident;
      const size_t half = there.size() / 2;
      resident.pack(0, std::span(there).first(half), nullptr);
      resident.pack(0, std::span(there).subspan(half), nullptr);
    }
    for (size_t i = 0; i < items.size(); ++i)
      std::memcpy(items[i].packed, there[i].packed, size_t(packed_bytes(items[i].layout, items[i].matrix.padded)));
    gpu_->release(memory);
  }

 private:
  static int64_t extent(const Matrix& m, int v) { return (m.real.n - 1) * m.view[v].stride + m.real.b; }
  /// The matrix's extent, and 32 bytes that may be read after it.
  static int64_t room(const Matrix& m, int v) { return round_up(extent(m, v) + 32, 16); }
  static int64_t bytes_of(const PackItem& item) {
    int64_t bytes = round_up(packed_bytes(item.layout, item.matrix.padded), 16);
    for (int v = 0; v < item.matrix.views; ++v) bytes += room(item.matrix, v);
    return bytes;
  }
  /// The item moved to memory at `at`. Rows keep their offsets modulo 16.
  static PackItem moved(PackItem item, uint8_t* at) {
    Matrix& m = item.matrix;
    for (int v = 0; v < m.views; ++v) {
      uint8_t* const rows = at + reinterpret_cast<uintptr_t>(m.view[v].data) % 16;
      std::memcpy(rows, m.view[v].data, size_t(extent(m, v)));
      m.view[v].data = rows;
      at += room(m, v);
    }
    item.packed = at;
    return item;
  }

  std::unique_ptr<Device> cpu_ = open_cpu(), gpu_ = open_cuda(0);
};

}  // namespace

TEST_CASE("cuda packs what is in its memory, by every layout by modes and every built-in one", "[gpu]") {
  if (cuda_device_count() == 0) return;
  ModeCases all = all_mode_cases();
  for (const Layout& layout : layouts)
    if (const Shape s = {256, 192}; fits(layout, s))
      all.cases.push_back({layout, {CaseRows::dense, {250, 190}, 1, 3}, s, {}, {1, 2, 3, 4}});
  InPlace device;
  check_cases(device, all.cases);
}
