// Runs matrices in the forms of checkpoints through two devices: both must make the same bytes, rows and reports.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "kernels/pack/device.h"
#include "tests/support/random_bytes.h"

namespace mxfp4 {

/// A matrix of one or two views over `bytes`, in the form of a checkpoint.
struct CaseRows {
  enum Form { dense, in_turn, halves, apart, distant } form;  // apart: each row is followed by foreign bytes
  Shape real;                                                 // of each view
  int views;
  int64_t skew;  // bytes before the first row
  int64_t stride() const { return form == in_turn ? 2 * real.b : form == apart ? real.b + 37 : real.b; }
  int64_t second() const { return form == in_turn ? real.b : real.n * stride() + (form == distant ? 37 : 0); }
  int64_t bytes() const { return skew + views * real.n * std::max(stride(), real.b) + 128; }
  template <class T>
  void see(BasicMatrix<T>& m, T* data) const {
    m.view[0] = {data + skew, stride()};
    if (views == 2) m.view[1] = {data + skew + second(), stride()};
    m.views = views;
    m.real = real;
  }
};

struct DeviceCase {
  Layout layout;
  CaseRows source;
  Shape padded;
  RowOrder order;
  PadBytes pad;
  uint8_t add = 0;
  template <class T>
  BasicMatrix<T> matrix(T* data) const {
    BasicMatrix<T> m;
    source.see(m, data);
    m.padded = padded;
    m.order = order;
    m.pad = pad;
    m.add = add;
    return m;
  }
  int64_t packed() const { return packed_bytes(layout, padded); }
};

inline bool same_report(const PadReport& a, const PadReport& b) {
  return a.wrong == b.wrong && a.n == b.n && a.b == b.b && a.is == b.is && a.expected == b.expected &&
         a.copies.wrong == b.copies.wrong && a.copies.at == b.copies.at;
}
inline bool same_report(const ViewReport& a, const ViewReport& b) {
  return a.wrong == b.wrong && a.n == b.n && a.b == b.b;
}
inline bool same_report(const CompareReport& a, const CompareReport& b) {
  return same_report(a.pads, b.pads) && same_report(a.view[0], b.view[0]) && same_report(a.view[1], b.view[1]);
}

/// The results of all cases in one batch on a device: packed bytes, then rows and reports from packed bytes with
/// flipped bits.
struct CaseResults {
  std::vector<std::vector<uint8_t>> packed, rows;
  std::vector<PadReport> reports;
  std::vector<CompareReport> compared;
};

/// Fills the memory that a GPU keeps between calls, so that no byte is right that a kernel leaves out.
inline void spoil_memory(Device& device) {
  constexpr int64_t bytes = 8 << 20, all = 192 << 20;
  const std::vector<uint8_t> junk(bytes, 0x5A);
  std::vector<uint8_t> packed(bytes);
  const Shape s{1, bytes};
  const std::vector<PackItem> items(all / bytes,
                                    {Plain{}, {{{junk.data(), bytes}}, 1, s, s, {}, {}, 0}, packed.data()});
  device.pack(items);
}

inline CaseResults run_cases(Device& device, const std::vector<DeviceCase>& cases, int flips, bool spoil = false) {
  CaseResults results;
  std::vector<std::vector<uint8_t>> sources, late;  // late: rows that are written before the comparison
  std::vector<PackItem> packs;
  std::vector<UnpackItem> unpacks;
  std::vector<CompareItem> compares;
  for (size_t i = 0; i < cases.size(); ++i) {
    sources.push_back(random_bytes(cases[i].source.bytes(), int(i)));
    results.packed.emplace_back(cases[i].packed(), uint8_t(0xEE));
    results.rows.emplace_back(cases[i].source.bytes(), uint8_t(0xDD));
    packs.push_back({cases[i].layout, cases[i].matrix<const uint8_t>(sources[i].data()), results.packed[i].data()});
  }
  if (spoil) spoil_memory(device);
  device.pack(packs);
  if (spoil) spoil_memory(device);
  auto flipped = results.packed;
  for (size_t i = 0; i < cases.size(); ++i) {
    std::mt19937 random{unsigned(i)};
    for (int f = 0; f < flips; ++f) flipped[i][random() % flipped[i].size()] ^= uint8_t(1 << random() % 8);
    unpacks.push_back({cases[i].layout, flipped[i].data(), cases[i].matrix(results.rows[i].data())});
    late.emplace_back(cases[i].source.bytes(), uint8_t(0xCC));
    compares.push_back({cases[i].layout, flipped[i].data(), cases[i].matrix<const uint8_t>(late[i].data())});
    if (i % 2)
      std::copy(sources[i].begin(), sources[i].end(), late[i].begin());
    else
      compares[i].fetch = [from = packs[i].matrix, to = cases[i].matrix(late[i].data())](int64_t first, int64_t end) {
        for (int v = 0; v < to.views; ++v)
          for (int64_t n = first; n < end; ++n)
            std::memcpy(to.view[v].data + n * to.view[v].stride, from.view[v].data + n * from.view[v].stride,
                        size_t(to.real.b));
      };
  }
  results.reports.resize(cases.size());
  device.unpack(unpacks, results.reports);
  results.compared.resize(cases.size());
  if (spoil) spoil_memory(device);
  device.compare(compares, results.compared);
  return results;
}

/// Compares the results of a GPU with those of the CPU.
inline void check_cases(Device& gpu, const std::vector<DeviceCase>& cases, int flips = 3) {
  const auto cpu = open_cpu();
  const CaseResults want = run_cases(*cpu, cases, flips), got = run_cases(gpu, cases, flips, true);
  for (size_t i = 0; i < cases.size(); ++i) {
    const DeviceCase& c = cases[i];
    INFO(name_of(c.layout) << ": " << c.padded.n << "x" << c.padded.b << " of " << c.source.real.n << "x"
                           << c.source.real.b << ", form " << int(c.source.form) << ", views " << c.source.views
                           << ", skew " << c.source.skew << ", block " << c.order.block << ", add " << int(c.add));
    CHECK(got.packed[i] == want.packed[i]);
    CHECK(got.rows[i] == want.rows[i]);
    CHECK(same_report(got.reports[i], want.reports[i]));
    CHECK(same_report(got.compared[i], want.compared[i]));
  }
}

}  // namespace mxfp4
