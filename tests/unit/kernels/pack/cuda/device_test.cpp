// The CUDA device makes the CPU's bytes, and its reports.
#include "kernels/pack/device.h"

#include <xxhash.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <string_view>

#include "tests/support/random_bytes.h"

using namespace mxfp4;

namespace {

/// A matrix of one or two views over `bytes`, as checkpoints have them.
struct Source {
  enum Form { dense, in_turn, halves, apart, distant } form;  // apart: each row is followed by bytes not its own
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

struct Case {
  Layout layout;
  Source source;
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

bool equal(const PadReport& a, const PadReport& b) {
  return a.wrong == b.wrong && a.n == b.n && a.b == b.b && a.is == b.is && a.expected == b.expected;
}
bool equal(const ViewReport& a, const ViewReport& b) { return a.wrong == b.wrong && a.n == b.n && a.b == b.b; }
bool equal(const CompareReport& a, const CompareReport& b) {
  return equal(a.pads, b.pads) && equal(a.view[0], b.view[0]) && equal(a.view[1], b.view[1]);
}

/// The cases in one batch through either device: packed bytes, then rows and reports from packed bytes with flipped
/// bits.
struct Results {
  std::vector<std::vector<uint8_t>> packed, rows;
  std::vector<PadReport> reports;
  std::vector<CompareReport> compared;
};

Results run(Device& device, const std::vector<Case>& cases, int flips) {
  Results results;
  std::vector<std::vector<uint8_t>> sources, late;  // late: rows that are there when they are compared
  std::vector<PackItem> packs;
  std::vector<UnpackItem> unpacks;
  std::vector<CompareItem> compares;
  for (size_t i = 0; i < cases.size(); ++i) {
    sources.push_back(random_bytes(cases[i].source.bytes(), int(i)));
    results.packed.emplace_back(cases[i].packed(), uint8_t(0xEE));
    results.rows.emplace_back(cases[i].source.bytes(), uint8_t(0xDD));
    packs.push_back({cases[i].layout, cases[i].matrix<const uint8_t>(sources[i].data()), results.packed[i].data()});
  }
  device.pack(packs);
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
  device.compare(compares, results.compared);
  return results;
}

/// Where the rows that run() unpacked are not the source's.
ViewReport difference(const Case& c, int view, const std::vector<uint8_t>& rows, int seed) {
  const auto source = random_bytes(c.source.bytes(), seed);
  const Rows is = c.matrix(rows.data()).view[view], want = c.matrix(source.data()).view[view];
  ViewReport d;
  for (int64_t n = c.source.real.n; n-- > 0;)
    for (int64_t b = c.source.real.b; b-- > 0;)
      if (is.data[n * is.stride + b] != want.data[n * want.stride + b]) ++d.wrong, d.n = n, d.b = b;
  return d;
}

void check_cases(Device& gpu, const std::vector<Case>& cases, int flips = 3) {
  const auto cpu = open_cpu();
  const Results want = run(*cpu, cases, flips), got = run(gpu, cases, flips);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    INFO(name_of(c.layout) << ": " << c.padded.n << "x" << c.padded.b << " of " << c.source.real.n << "x"
                           << c.source.real.b << ", form " << int(c.source.form) << ", views " << c.source.views
                           << ", skew " << c.source.skew << ", block " << c.order.block << ", add " << int(c.add));
    CHECK(got.packed[i] == want.packed[i]);
    CHECK(got.rows[i] == want.rows[i]);
    CHECK(equal(got.reports[i], want.reports[i]));
    CHECK(equal(got.compared[i], want.compared[i]));
  }
}

/// Bytes of a row of k columns in the kind of matrix that the layout is for.
int64_t row_bytes(const Layout& layout, int64_t k) {
  const std::string_view name = name_of(layout);
  if (name.ends_with(".scales")) return k / 32;
  if (name.ends_with(".bias")) return name.starts_with("trtllm") ? 4 : 2;
  return k / 2;
}

/// The least shape from s on that the layout takes.
Shape fitting(const Layout& layout, Shape s) {
  const Shape multiple = multiple_of(layout);
  return {round_up(s.n, multiple.n), round_up(s.b, multiple.b)};
}

}  // namespace

TEST_CASE("compare finds what unpack and a loop over the rows find") {
  const auto cpu = open_cpu();
  std::vector<Case> cases;
  for (const Layout& layout : layouts)
    for (const Source::Form form : {Source::dense, Source::in_turn, Source::apart}) {
      const int views = form == Source::in_turn ? 2 : 1;
      const Shape padded = fitting(layout, {256, row_bytes(layout, 2880)});
      const Shape real{padded.n / views - 3, std::max<int64_t>(1, padded.b - 5)};
      const uint8_t add = form == Source::dense ? 6 : 0;
      cases.push_back({layout, {form, real, views, 4}, padded, {0, false}, {0, 0x7F, 0, 0x3C}, add});
    }
  const Results r = run(*cpu, cases, 12);
  int64_t wrong = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    INFO(name_of(cases[i].layout) << ", form " << int(cases[i].source.form));
    CHECK(equal(r.compared[i].pads, r.reports[i]));
    for (int v = 0; v < cases[i].source.views; ++v) {
      CHECK(equal(r.compared[i].view[v], difference(cases[i], v, r.rows[i], int(i))));
      wrong += r.compared[i].view[v].wrong;
    }
  }
  CHECK(wrong > int64_t(cases.size()));
}

TEST_CASE("cuda makes the CPU's bytes for every layout and golden shape", "[gpu]") {
  if (cuda_device_count() == 0) return;
  const auto gpu = open_cuda(0);
  std::vector<Case> cases;
  const Shape golden[] = {{64, 128}, {128, 2880}, {192, 640}, {320, 384}, {256, 256}, {2880, 2880}};
  for (const Layout& layout : layouts)
    for (const Shape nk : golden)
      for (const int64_t skew : {0, 8, 5}) {
        const Shape s = fitting(layout, {nk.n, row_bytes(layout, nk.b)});
        cases.push_back({layout, {Source::dense, s, 1, skew}, s, {}, {}});
      }
  check_cases(*gpu, cases);
}

TEST_CASE("cuda keeps row orders, paddings and strides as the CPU does", "[gpu]") {
  if (cuda_device_count() == 0) return;
  const auto gpu = open_cuda(0);
  std::vector<Case> cases;
  std::mt19937 random(1);
  const auto one_of = [&](std::initializer_list<int64_t> values) { return values.begin()[random() % values.size()]; };
  for (const Layout& layout : layouts)
    for (int i = 0; i < 24; ++i) {
      const int64_t block = one_of({0, 1, 8, 16, 64});
      const int views = i % 3 ? 2 : 1;
      Shape padded = fitting(layout, {128 * one_of({1, 2, 3, 5}), row_bytes(layout, 32 * one_of({2, 5, 9, 12, 90}))});
      padded.n = round_up(padded.n, 256);
      const Shape real{padded.n / views - one_of({0, 1, 17}),
                       std::max<int64_t>(1, padded.b - one_of({0, 0, 1, 7, 16}))};
      cases.push_back({layout,
                       {Source::Form(random() % 5), real, views, one_of({0, 1, 2, 4, 8, 16})},
                       padded,
                       {block, random() % 2 == 0},
                       {0x11, 0x7F, 0xA5, 0x3C},
                       uint8_t(one_of({0, 6}))});
      if (views == 1 && cases.back().source.form != Source::apart) cases.back().source.form = Source::dense;
    }
  check_cases(*gpu, cases);
}

TEST_CASE("cuda keeps rows that share sectors, in turn or dense, as the CPU does", "[gpu]") {
  if (cuda_device_count() == 0) return;
  const auto gpu = open_cuda(0);
  for (const Layout& layout : layouts) DYNAMIC_SECTION(name_of(layout)) {
      std::vector<Case> cases;
      for (const int64_t block : {0, 1, 8, 32, 64})
        for (const int64_t n : {128, 640, 768})
          for (const int64_t b : {90, 45, 17, 15}) {
            const int i = int(cases.size()), missing = i % 3;
            Shape padded = fitting(layout, {n, std::min(b + i % 2 * 3, row_bytes(layout, 32 * 96))});
            padded.n = round_up(padded.n, 128);
            const Shape real{padded.n / 2 - missing, std::min(b, padded.b)};
            const Source::Form form = i % 4 ? Source::in_turn : Source::dense;
            cases.push_back(
                {layout, {form, real, 2, 2 * (i % 7)}, padded, {block, i % 5 < 2}, {0x11, 0x7F, 0xA5, 0x3C}});
          }
      check_cases(*gpu, cases);
    }
}

TEST_CASE("cuda packs in as little device memory as one matrix needs", "[gpu]") {
  if (cuda_device_count() == 0) return;
  std::vector<Case> cases;
  for (int i = 0; i < 40; ++i) {
    const Layout layout = layouts[size_t(i) % layouts.size()];
    const Shape s = fitting(layout, {256 * (1 + i % 3), row_bytes(layout, 2880)});
    cases.push_back({layout, {Source::dense, s, 1, 0}, s, {}, {}});
  }
  for (const int64_t memory : {1, 1 << 20, 3 << 20}) check_cases(*open_cuda(0, memory), cases);
}

/// Packs rows of so many bytes each as they are, with the checksums of the packed bytes and of the rows: of each second
/// in two parts, the second of which begins at any byte.
void check_sums(Device& device, const std::vector<int64_t>& lengths) {
  std::vector<std::vector<uint8_t>> rows, packed;
  std::vector<PackItem> items;
  std::vector<Checksum> sums;
  for (const int64_t bytes : lengths) {
    rows.push_back(random_bytes(bytes, int(bytes)));
    packed.emplace_back(size_t(bytes));
    const Shape s{1, bytes};
    items.push_back({Plain{}, {{{rows.back().data(), bytes}}, 1, s, s, {}, {}, 0}, packed.back().data()});
    sums.push_back({packed.back().data(), bytes});
    const int64_t part = bytes % 2 ? bytes : bytes % 4 ? bytes / 2 : bytes / 32 * 16;
    sums.push_back({rows.back().data(), part});
    if (part < bytes) sums.push_back({rows.back().data() + part, bytes - part});
  }
  device.pack(items, sums);
  for (const Checksum& sum : sums) {
    const XXH128_hash_t want = XXH3_128bits(sum.data, size_t(sum.bytes));
    INFO(sum.bytes << " bytes");
    CHECK(sum.done == (device.makes_checksums() && sum.bytes > 240 && reinterpret_cast<uintptr_t>(sum.data) % 16 == 0));
    if (sum.done) CHECK((sum.low == want.low64 && sum.high == want.high64));
  }
}

TEST_CASE("cuda makes the checksums of what it packs", "[gpu]") {
  if (cuda_device_count() == 0) return;
  std::vector<int64_t> lengths;
  for (int64_t bytes = 1; bytes <= 4200; ++bytes) lengths.push_back(bytes);
  for (const int64_t bytes : {1 << 20, (1 << 20) + 1, 8294400, 8294399}) lengths.push_back(bytes);
  check_sums(*open_cuda(0), lengths);
}

TEST_CASE("cuda makes checksums in little device memory", "[gpu]") {
  if (cuda_device_count() == 0) return;
  check_sums(*open_cuda(0, 1 << 20), {5000, 4096, 1 << 19, 70000});
}

TEST_CASE("a CPU leaves checksums to its caller") { check_sums(*open_cpu(), {100, 4096, 70000}); }

TEST_CASE("cuda makes the CPU's bytes for whole layers of 32 to 256 experts", "[gpu][large]") {
  if (cuda_device_count() == 0) return;
  constexpr int distinct = 4;
  struct Layer {
    int64_t experts, n, k;
  };
  const auto gpu = open_cuda(0), cpu = open_cpu();
  const int64_t most = int64_t(256) * 4096 * 1056;
  uint8_t* const memory = gpu->allocate(most);
  for (const Layout& layout : layouts)
    for (const Layer layer : {Layer{32, 5760, 2880}, Layer{128, 2880, 2880}, Layer{256, 4096, 2048}}) {
      const Shape s = fitting(layout, {layer.n, row_bytes(layout, layer.k)});
      const int64_t size = packed_bytes(layout, s);
      INFO(name_of(layout) << " " << layer.experts << " of " << s.n << "x" << s.b);
      REQUIRE(layer.experts * size <= most);
      const auto source = random_bytes(distinct * s.n * s.b, 7);
      std::vector<uint8_t> want(distinct * size), back(distinct * s.n * s.b);
      std::vector<PackItem> packs;
      std::vector<UnpackItem> unpacks;
      for (int64_t e = 0; e < layer.experts; ++e) {
        Matrix m;
        m.view[0] = {source.data() + e % distinct * s.n * s.b, s.b};
        m.real = m.padded = s;
        packs.push_back({layout, m, memory + e * size});
      }
      std::memset(memory, 0xEE, size_t(layer.experts * size));
      gpu->pack(packs);
      auto few = std::vector(packs.begin(), packs.begin() + distinct);
      for (int e = 0; e < distinct; ++e) few[e].packed = want.data() + e * size;
      cpu->pack(few);
      int64_t wrong = 0;
      for (int64_t e = 0; e < layer.experts; ++e)
        wrong += std::memcmp(memory + e * size, want.data() + e % distinct * size, size_t(size)) != 0;
      CHECK(wrong == 0);
      for (int e = 0; e < distinct; ++e) {
        MutableMatrix m;
        m.view[0] = {back.data() + e * s.n * s.b, s.b};
        m.real = m.padded = s;
        unpacks.push_back({layout, memory + (layer.experts - distinct + e) * size, m});
      }
      std::vector<PadReport> reports(distinct);
      gpu->unpack(unpacks, reports);
      CHECK(back == source);
      CHECK(std::all_of(reports.begin(), reports.end(), [](const PadReport& r) { return r.wrong == 0; }));
    }
  gpu->release(memory);
}

TEST_CASE("a GPU that is not there is an error that says so") {
  CHECK_THROWS_AS(open_cuda(cuda_device_count()), DeviceError);
  CHECK_THROWS_AS(open_cuda(-1), DeviceError);
  CHECK(!cuda_description().empty());
}
