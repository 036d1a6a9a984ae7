#include "kernels/pack/repeats.h"

namespace mxfp4 {

namespace {

/// use(place of a nibble, place of the one that it repeats) for each.
template <class Use>
void each_repeat(const std::vector<Repeat>& repeats, int64_t row_bytes, Use use) {
  for (const Repeat& r : repeats)
    for (int64_t i = 0; i < r.count; ++i)
      use(r.row * row_bytes * 2 + r.at + i, r.from_row * row_bytes * 2 + r.from_at + i);
}

}  // namespace

void fill_repeats(const std::vector<Repeat>& repeats, int64_t row_bytes, uint8_t* rows) {
  each_repeat(repeats, row_bytes, [&](int64_t at, int64_t from) { put_nibble(rows, at, nibble_at(rows, from)); });
}

void take_repeats(const std::vector<Repeat>& repeats, const MutableMatrix& m, int64_t row_bytes, uint8_t* rows,
                  PadReport& report) {
  each_repeat(repeats, row_bytes, [&](int64_t at, int64_t from) {
    if (nibble_at(rows, at) == nibble_at(rows, from) || report.wrong++) return;
    report.n = at / 2 / row_bytes;
    report.b = at / 2 % row_bytes;
    report.is = report.expected = rows[at / 2];
    put_nibble(&report.expected, at % 2, nibble_at(rows, from));
  });
  each_repeat(repeats, row_bytes, [&](int64_t at, int64_t) {
    const auto pad = uint8_t(m.pad_byte(at / 2 / row_bytes, at / 2 % row_bytes) + m.add);
    put_nibble(rows, at, nibble_at(&pad, at % 2));
  });
}

}  // namespace mxfp4
