#include "kernels/pack/stage.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace mxfp4 {
namespace {

void add_bytes(uint8_t* p, int64_t n, uint8_t add) {
  if (add == 0) return;
  for (int64_t i = 0; i < n; ++i) p[i] = uint8_t(p[i] + add);
}

void copy_rows(uint8_t* to, int64_t to_stride, const uint8_t* from, int64_t from_stride, Shape s) {
  if (s.n == 0) return;  // a matrix of pads alone has no view
  if (to_stride == s.b && from_stride == s.b) {
    std::memcpy(to, from, s.n * s.b);
    return;
  }
  for (int64_t r = 0; r < s.n; ++r) std::memcpy(to + r * to_stride, from + r * from_stride, s.b);
}

/// Storage rows of one kind: the first `real` are consecutive rows of `view`, then come pads.
template <class T>
struct Run {
  int64_t rows, real;
  BasicRows<T> view;
};

/// The run at row n, not beyond `end`.
template <class T>
Run<T> run_at(const BasicMatrix<T>& m, int64_t n, int64_t end) {
  if (n >= m.padded.n) return {end - n, 0, {}};
  const RowSource source = m.source(n);
  const int64_t rows = std::min(end - n, m.rows_together(n));
  const int64_t real = std::clamp<int64_t>(m.real.n - source.row, 0, rows);
  BasicRows<T> view = m.view[source.view];
  if (real > 0) view.data += source.row * view.stride;
  return {rows, real, view};
}

/// Bytes begin to end of a storage row, which are pads of one kind.
struct Pads {
  int64_t begin, end;
  PadByte byte;
};

/// The pads of row n: in the columns of the views' rows, in the engine's further columns, and in the storage's. real: a
/// view has the row.
template <class T>
std::array<Pads, 3> pads_of(const BasicMatrix<T>& m, Shape s, int64_t n, bool real) {
  const bool engine = n < m.padded.n;
  const int64_t begin = real ? m.real.b : 0, middle = engine ? m.real.b : 0, end = engine ? m.padded.b : 0;
  return {{{begin, middle, m.pad.row}, {middle, end, real ? m.pad.column : m.pad.corner}, {end, s.b, m.pad.storage}}};
}

void fill(uint8_t* row, const Pads& pads) {
  if (pads.begin >= pads.end) return;
  if (pads.byte.is_one()) {
    std::memset(row + pads.begin, pads.byte.at(0), pads.end - pads.begin);
    return;
  }
  for (int64_t b = pads.begin; b < pads.end; ++b) row[b] = pads.byte.at(b);
}

int64_t count_wrong(const uint8_t* row, const Pads& pads) {
  int64_t wrong = 0;
  if (const uint8_t byte = pads.byte.at(0); pads.byte.is_one())
    for (int64_t b = pads.begin; b < pads.end; ++b) wrong += row[b] != byte;
  else
    for (int64_t b = pads.begin; b < pads.end; ++b) wrong += row[b] != pads.byte.at(b);
  return wrong;
}

/// Compares the pads of row n with their expected values.
void check(const uint8_t* row, int64_t n, const Pads& pads, PadReport& report) {
  const int64_t wrong = count_wrong(row, pads);
  if (wrong == 0) return;
  if (report.wrong == 0) {
    report.n = n;
    report.b = pads.begin;
    while (row[report.b] == pads.byte.at(report.b)) ++report.b;
    report.is = row[report.b];
    report.expected = pads.byte.at(report.b);
  }
  report.wrong += wrong;
}

/// The pads of a run's rows, which begin at `from`; row n is the first.
template <class T>
void check_pads(const BasicMatrix<T>& m, Shape s, int64_t n, const Run<T>& run, const uint8_t* from,
                PadReport& report) {
  for (int64_t r = m.real.b < s.b ? 0 : run.real; r < run.rows; ++r)
    for (Pads pads : pads_of(m, s, n + r, r < run.real)) {
      if (m.add) pads.byte = uint8_t(pads.byte.at(0) + m.add);
      check(from + r * s.b, n + r, pads, report);
    }
}

bool is_sum(const uint8_t* sum, const uint8_t* from, int64_t n, uint8_t add) {
  if (add == 0) return std::memcmp(sum, from, size_t(n)) == 0;
  return std::equal(sum, sum + n, from, [=](uint8_t a, uint8_t b) { return a == uint8_t(b + add); });
}

}  // namespace

void stage(const Matrix& m, Shape s, int64_t n, int64_t end, uint8_t* to) {
  while (n < end) {
    const auto run = run_at(m, n, end);
    copy_rows(to, s.b, run.view.data, run.view.stride, {run.real, m.real.b});
    for (int64_t r = m.real.b < s.b ? 0 : run.real; r < run.rows; ++r)
      for (const Pads& pads : pads_of(m, s, n + r, r < run.real)) fill(to + r * s.b, pads);
    add_bytes(to, run.rows * s.b, m.add);
    n += run.rows;
    to += run.rows * s.b;
  }
}

bool is_staged(const Matrix& m, Shape s, int64_t n, int64_t end, const uint8_t* rows) {
  PadReport report;
  while (n < end) {
    const auto run = run_at(m, n, end);
    for (int64_t r = 0; r < run.real; ++r)
      if (!is_sum(rows + r * s.b, run.view.data + r * run.view.stride, m.real.b, m.add)) return false;
    check_pads(m, s, n, run, rows, report);
    n += run.rows;
    rows += run.rows * s.b;
  }
  return report.wrong == 0;
}

void unstage(const MutableMatrix& m, Shape s, int64_t n, int64_t end, const uint8_t* from, PadReport& report) {
  while (n < end) {
    const auto run = run_at(m, n, end);
    copy_rows(run.view.data, run.view.stride, from, s.b, {run.real, m.real.b});
    if (m.add)
      for (int64_t r = 0; r < run.real; ++r) add_bytes(run.view.data + r * run.view.stride, m.real.b, uint8_t(-m.add));
    check_pads(m, s, n, run, from, report);
    n += run.rows;
    from += run.rows * s.b;
  }
}

}  // namespace mxfp4
