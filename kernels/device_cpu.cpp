#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "kernels/device.h"
#include "kernels/driver.h"
#include "kernels/stage.h"
#include "kernels/strip.h"

namespace mxfp4 {
namespace {

constexpr int64_t huge_page = int64_t(2) << 20;
constexpr int64_t least_stream = 4096;  // smaller strips are not worth the wait at their end

bool is_strip_together(const Layout& layout) {
  return std::visit(
      [](auto l) {
        if constexpr (is_plain<decltype(l)>)
          return false;
        else
          return mxfp4::is_strip_together<decltype(l)>();
      },
      layout);
}

int tile_rows(const Layout& layout) {
  return std::visit(
      [](auto l) {
        if constexpr (is_plain<decltype(l)>)
          return 0;
        else
          return decltype(l)::tile_n;
      },
      layout);
}

class Cpu final : public Device {
 public:
  explicit Cpu(const Driver& driver) : driver_(driver) {}
  std::string name() const override { return "cpu"; }
  uint8_t* allocate(int64_t bytes) override {
    const int64_t page = bytes >= huge_page ? huge_page : 4096;
    void* p = std::aligned_alloc(size_t(page), size_t(round_up(bytes, page)));
    if (!p) throw std::bad_alloc();
    if (page == huge_page) ::madvise(p, size_t(round_up(bytes, page)), MADV_HUGEPAGE);  // if not, it is only slower
    return static_cast<uint8_t*>(p);
  }
  void release(uint8_t* memory) override { std::free(memory); }
  void pack(std::span<const PackItem> items) override {
    for (const PackItem& item : items) pack(item);
  }
  void unpack(std::span<const UnpackItem> items, std::span<PadReport> reports) override {
    for (size_t i = 0; i < items.size(); ++i) unpack(items[i], reports[i]);
  }
  void compare(std::span<const CompareItem> items, std::span<CompareReport> reports) override {
    for (size_t i = 0; i < items.size(); ++i) compare(items[i], reports[i]);
  }

 private:
  void pack(const PackItem& item) {
    const Shape s = storage_of(item.layout, item.matrix.padded);
    const int64_t rows = tile_rows(item.layout);
    if (rows == 0) return stage(item.matrix, s, 0, s.n, item.packed);
    const PackStrip pack = driver_.pack[item.layout.index()];
    const int64_t bytes = rows * s.b;
    const bool stream = driver_.stream && bytes >= least_stream && is_strip_together(item.layout);
    strip_.resize(size_t(bytes));
    if (stream) packed_.resize(size_t(bytes));
    for (int64_t tn = 0; tn < s.n / rows; ++tn) {
      stage(item.matrix, s, tn * rows, (tn + 1) * rows, strip_.data());
      if (!stream) {
        pack(strip_.data(), s, tn, item.packed);
      } else {
        pack(strip_.data(), s, 0, packed_.data());
        driver_.stream(item.packed + tn * bytes, packed_.data(), bytes);
      }
    }
  }

  void unpack(const UnpackItem& item, PadReport& report) {
    const Shape s = storage_of(item.layout, item.matrix.padded);
    const int64_t rows = tile_rows(item.layout);
    report = {};
    if (rows == 0) return unstage(item.matrix, s, 0, s.n, item.packed, report);
    strip_.resize(size_t(rows * s.b));
    for (int64_t tn = 0; tn < s.n / rows; ++tn) {
      driver_.unpack[item.layout.index()](item.packed, s, tn, strip_.data());
      unstage(item.matrix, s, tn * rows, (tn + 1) * rows, strip_.data(), report);
    }
  }

  /// Strip by strip, which stay in the cache; where one differs, all of it again for the report.
  void compare(const CompareItem& item, CompareReport& report) {
    report = {};
    if (!is_equal(item)) report_differences(item, report);
  }

  bool is_equal(const CompareItem& item) {
    const Shape s = storage_of(item.layout, item.matrix.padded);
    const int64_t rows = tile_rows(item.layout), step = rows ? rows : 16;
    strip_.resize(size_t(step * s.b));
    expected_.resize(strip_.size());
    for (int64_t n = 0; n < s.n; n += step) {
      const int64_t end = std::min(n + step, s.n);
      const uint8_t* is = item.packed + n * s.b;
      if (rows) driver_.unpack[item.layout.index()](item.packed, s, n / rows, strip_.data()), is = strip_.data();
      stage(item.matrix, s, n, end, expected_.data());
      if (std::memcmp(is, expected_.data(), size_t((end - n) * s.b)) != 0) return false;
    }
    return true;
  }

  void report_differences(const CompareItem& item, CompareReport& report) {
    const Matrix& m = item.matrix;
    MutableMatrix unpacked{{}, m.views, m.real, m.padded, m.order, m.pad, m.add};
    rows_.resize(size_t(m.views * m.real.n * m.real.b));
    for (int v = 0; v < m.views; ++v) unpacked.view[v] = {rows_.data() + v * m.real.n * m.real.b, m.real.b};
    unpack({item.layout, item.packed, unpacked}, report.pads);
    for (int v = 0; v < m.views; ++v) report.view[v] = difference(unpacked.view[v].data, m.view[v], m.real);
  }

  static ViewReport difference(const uint8_t* is, const Rows& expected, Shape s) {
    ViewReport d;
    for (int64_t n = 0; n < s.n; ++n, is += s.b) {
      const uint8_t* want = expected.data + n * expected.stride;
      if (std::memcmp(is, want, size_t(s.b)) == 0) continue;
      for (int64_t b = 0; b < s.b; ++b)
        if (is[b] != want[b] && d.wrong++ == 0) d.n = n, d.b = b;
    }
    return d;
  }

  const Driver& driver_;
  std::vector<uint8_t> strip_, packed_, expected_, rows_;
};

}  // namespace

std::unique_ptr<Device> open_cpu() { return open_cpu(chosen_driver()); }
std::unique_ptr<Device> open_cpu(const Driver& driver) { return std::make_unique<Cpu>(driver); }

}  // namespace mxfp4
