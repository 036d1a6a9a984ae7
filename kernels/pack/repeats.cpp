#include "kernels/pack/repeats.h"

#include <algorithm>

namespace mxfp4 {

namespace {

int nibble_of(const uint8_t* row, int64_t at) { return row[at / 2] >> at % 2 * 4 & 15; }

/// use(nibble's place in the staged rows, nibble of the matrix) for each that repeats another.
template <class T, class Use>
void each_repeat(const std::vector<Repeat>& repeats, const BasicMatrix<T>& m, Staged s, Use use) {
  const auto begin =
      std::lower_bound(repeats.begin(), repeats.end(), s.n, [](const Repeat& r, int64_t n) { return r.row < n; });
  for (auto r = begin; r != repeats.end() && r->row < s.end; ++r) {
    const RowSource source = m.source(r->from_row);
    const uint8_t* const row = m.view[source.view].data + source.row * m.view[source.view].stride;
    for (int64_t i = 0; i < r->count; ++i) {
      const int64_t from = r->from_at + i;
      const auto sum = uint8_t(row[from / 2] + m.add);
      use((r->row - s.n) * s.bytes * 2 + r->at + i, nibble_of(&sum, from % 2), r->row, (r->at + i) / 2);
    }
  }
}

void put(uint8_t* rows, int64_t at, int nibble) {
  const int shift = int(at % 2) * 4;
  rows[at / 2] = uint8_t((rows[at / 2] & 0xF0 >> shift) | nibble << shift);
}

}  // namespace

void fill_repeats(const std::vector<Repeat>& repeats, const Matrix& m, Staged s, uint8_t* rows) {
  each_repeat(repeats, m, s, [&](int64_t at, int nibble, int64_t, int64_t) { put(rows, at, nibble); });
}

template <class T>
void clear_repeats(const std::vector<Repeat>& repeats, const BasicMatrix<T>& m, Staged s, uint8_t* rows) {
  each_repeat(repeats, m, s, [&](int64_t at, int, int64_t n, int64_t b) {
    const auto pad = uint8_t(m.pad_byte(n, b) + m.add);
    put(rows, at, nibble_of(&pad, at % 2));
  });
}

template <class T>
void compare_repeats(const std::vector<Repeat>& repeats, const BasicMatrix<T>& m, Staged s, const uint8_t* rows,
                     PadReport& report) {
  each_repeat(repeats, m, s, [&](int64_t at, int nibble, int64_t n, int64_t b) {
    if (nibble_of(rows, at) == nibble || report.wrong++) return;
    report.n = n;
    report.b = b;
    report.is = rows[at / 2];
    report.expected = rows[at / 2];
    put(&report.expected, at % 2, nibble);
  });
}

template void clear_repeats(const std::vector<Repeat>&, const Matrix&, Staged, uint8_t*);
template void clear_repeats(const std::vector<Repeat>&, const MutableMatrix&, Staged, uint8_t*);
template void compare_repeats(const std::vector<Repeat>&, const Matrix&, Staged, const uint8_t*, PadReport&);
template void compare_repeats(const std::vector<Repeat>&, const MutableMatrix&, Staged, const uint8_t*, PadReport&);

}  // namespace mxfp4
