#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <new>
#include <vector>

#include "kernels/pack/cpu/driver.h"
#include "kernels/pack/cpu/strips.h"
#include "kernels/pack/device.h"
#include "kernels/pack/repeats.h"
#include "kernels/pack/stage.h"

namespace mxfp4 {
namespace {

constexpr int64_t huge_page = int64_t(2) << 20;
constexpr size_t most_known = 64;          // layouts of matrices whose strips are kept
constexpr int64_t band_bytes = 256 << 10;  // of the views' rows that are fetched at once: fits into a core's own cache

struct Free {
  void operator()(uint8_t* p) const { std::free(p); }
};

uint8_t* allocate_pages(int64_t bytes) {
  const int64_t page = bytes >= huge_page ? huge_page : 4096;
  void* p = nullptr;
  if (::posix_memalign(&p, size_t(page), size_t(bytes)) != 0) throw std::bad_alloc();
  if (page == huge_page) ::madvise(p, size_t(bytes / page * page), MADV_HUGEPAGE);  // if it fails, packing is slower
  return static_cast<uint8_t*>(p);
}

/// A strip's rows; they begin at a cache line.
class Buffer {
 public:
  void reserve(int64_t bytes) {
    if (bytes <= bytes_) return;
    bytes_ = 0;
    data_.reset(allocate_pages(bytes));
    bytes_ = bytes;
  }
  uint8_t* data() const { return data_.get(); }

 private:
  std::unique_ptr<uint8_t, Free> data_;
  int64_t bytes_ = 0;
};

/// A layout of a matrix of some shape, ready to be used.
struct Known {
  Layout layout;
  std::unique_ptr<const ModeLayout> made;  // of a layout that is no ByModes
  Strips strips;
};

class Cpu final : public Device {
 public:
  explicit Cpu(const Driver& driver) : driver_(driver) {}
  std::string name() const override { return "cpu"; }
  uint8_t* allocate(int64_t bytes) override { return allocate_pages(bytes); }
  void release(uint8_t* memory) override { std::free(memory); }
  void pack(std::span<const PackItem> items, std::span<Checksum>) override {
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
    const Strips& strips = strips_of(item.layout, item.matrix.padded);
    const Shape s = strips.layout().storage;
    if (strips.is_plain()) return stage(item.matrix, s, 0, s.n, item.packed);
    const int64_t rows = rows_at_once(strips);
    strip_.reserve(rows * s.b);
    for (int64_t n = 0; n < s.n; n += rows) {
      const uint8_t* from = strip_in_view(item.matrix, s, n, rows);
      if (!from) {
        stage(item.matrix, s, n, n + rows, strip_.data());
        fill_repeats(strips.layout().repeats, s.b, strip_.data());
        from = strip_.data();
      }
      for (int64_t at = 0; at < rows; at += strips.rows()) strips.pack(from + at * s.b, n + at, item.packed);
    }
  }

  /// A row may repeat values of any other one.
  static int64_t rows_at_once(const Strips& strips) {
    return strips.layout().repeats.empty() ? strips.rows() : strips.layout().storage.n;
  }

  const Strips& strips_of(const Layout& layout, Shape padded) {
    const auto* given = std::get_if<ByModes>(&layout);
    const Shape s = storage_of(layout, padded);
    for (const Known& known : known_)
      if (given ? &known.strips.layout() == given->modes
                : known.layout.index() == layout.index() && known.strips.layout().storage == s)
        return known.strips;
    if (known_.size() == most_known) known_.clear();
    auto made = given ? nullptr : std::make_unique<const ModeLayout>(s, modes_of(layout, s), false);
    const ModeLayout& modes = given ? *given->modes : *made;
    return known_.emplace_back(Known{layout, std::move(made), Strips(modes, driver_)}).strips;
  }

  /// Rows n to n + rows of the storage in a view's memory, if they follow one another there and staging would not
  /// change them; else null.
  template <class T>
  static T* strip_in_view(const BasicMatrix<T>& m, Shape s, int64_t n, int64_t rows) {
    if (n >= m.padded.n || m.rows_together(n) < rows) return nullptr;
    const RowSource source = m.source(n);
    const BasicRows<T>& view = m.view[source.view];
    const bool as_is = source.row + rows <= m.real.n && view.stride == s.b && m.real.b == s.b && m.add == 0;
    return as_is ? view.data + source.row * view.stride : nullptr;
  }

  void unpack(const UnpackItem& item, PadReport& report) {
    const Strips& strips = strips_of(item.layout, item.matrix.padded);
    const ModeLayout& layout = strips.layout();
    const Shape s = layout.storage;
    report = {};
    if (strips.is_plain()) return unstage(item.matrix, s, 0, s.n, item.packed, report);
    const int64_t rows = rows_at_once(strips), bytes = s.n * s.b * layout.copies;
    strip_.reserve(rows * s.b);
    again_.clear();
    for (int64_t n = 0; n < s.n; n += rows) {
      uint8_t* const in_view = strip_in_view(item.matrix, s, n, rows);
      uint8_t* const to = in_view ? in_view : strip_.data();
      for (int64_t at = 0; at < rows; at += strips.rows()) {
        strips.unpack(item.packed, n + at, to + at * s.b, in_view != nullptr);
        if (layout.copies == 1 || strips.has_equal_copies(item.packed, n + at, to + at * s.b)) continue;
        if (again_.empty()) again_.assign(item.packed, item.packed + bytes);
        strips.pack(to + at * s.b, n + at, again_.data());
      }
      if (in_view) continue;
      take_repeats(layout.repeats, item.matrix, s.b, to, report);
      unstage(item.matrix, s, n, n + rows, to, report);
    }
    if (again_.empty()) return;
    const ViewReport copies = difference(again_.data(), {item.packed, bytes}, {1, bytes});
    report.copies = {copies.wrong, copies.b};
  }

  /// Compares strip by strip, so that a strip stays in the cache. If one differs, compares the whole item again to
  /// report all differences.
  void compare(const CompareItem& item, CompareReport& report) {
    report = {};
    int64_t fetched = 0;
    const auto fetch = [&](int64_t end) {
      if (item.fetch && fetched < end) item.fetch(fetched, end);
      fetched = std::max(fetched, end);
    };
    const ModeLayout& layout = strips_of(item.layout, item.matrix.padded).layout();
    const bool at_once = layout.copies > 1 || !layout.repeats.empty();
    for (const Strip& strip : at_once ? std::vector<Strip>() : strips_in_order(item)) {
      fetch(strip.view_end);
      if (!is_equal(item, strip)) return report_differences(item, fetch, report);
    }
    if (at_once) report_differences(item, fetch, report);
  }

  /// Rows n to end of the storage, which come from rows before view_end of the views.
  struct Strip {
    int64_t n, end, view_end;
  };
  /// The strips of an item, in the order in which they need the views' rows.
  std::vector<Strip> strips_in_order(const CompareItem& item) {
    const Matrix& m = item.matrix;
    const Strips& known = strips_of(item.layout, m.padded);
    const Shape s = known.layout().storage;
    const int64_t step = known.is_plain() ? 16 : known.rows();
    const int64_t band = std::max(step, band_bytes / std::max<int64_t>(m.views * m.real.b, 1));
    std::vector<Strip> strips;
    for (int64_t n = 0; n < s.n; n += step) {
      Strip strip{n, std::min(n + step, s.n), 0};
      for (int64_t at = n, rows; at < std::min(strip.end, m.padded.n); at += rows) {
        rows = std::min(strip.end - at, m.rows_together(at));
        strip.view_end = std::max(strip.view_end, m.source(at).row + rows);
      }
      strip.view_end = std::min(round_up(strip.view_end, band), m.real.n);
      strips.push_back(strip);
    }
    std::stable_sort(strips.begin(), strips.end(),
                     [](const Strip& a, const Strip& b) { return a.view_end < b.view_end; });
    return strips;
  }

  bool is_equal(const CompareItem& item, const Strip& strip) {
    const Strips& strips = strips_of(item.layout, item.matrix.padded);
    const Shape s = strips.layout().storage;
    if (strips.is_plain()) return is_staged(item.matrix, s, strip.n, strip.end, item.packed + strip.n * s.b);
    strip_.reserve(strips.rows() * s.b);
    strips.unpack(item.packed, strip.n, strip_.data(), false);
    return is_staged(item.matrix, s, strip.n, strip.end, strip_.data());
  }

  template <class Fetch>
  void report_differences(const CompareItem& item, Fetch fetch, CompareReport& report) {
    const Matrix& m = item.matrix;
    fetch(m.real.n);
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
  Buffer strip_;
  std::deque<Known> known_;
  std::vector<uint8_t> rows_, again_;
};

}  // namespace

std::unique_ptr<Device> open_cpu() { return open_cpu(chosen_driver()); }
std::unique_ptr<Device> open_cpu(const Driver& driver) { return std::make_unique<Cpu>(driver); }

}  // namespace mxfp4
