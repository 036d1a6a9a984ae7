// Compares packed bytes and reports of the CUDA device with the CPU's.
#include "kernels/pack/device.h"

#include <xxhash.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <string_view>

#include "tests/support/device_cases.h"

using namespace mxfp4;

namespace {

/// The differences between the source and the rows that run_cases() has unpacked.
ViewReport difference(const DeviceCase& c, int view, const std::vector<uint8_t>& rows, int seed) {
  const auto source = random_bytes(c.source.bytes(), seed);
  const Rows is = c.matrix(rows.data()).view[view], want = c.matrix(source.data()).view[view];
  ViewReport d;
  for (int64_t n = c.source.real.n; n-- > 0;)
    for (int64_t b = c.source.real.b; b-- > 0;)
      if (is.data[n * is.stride + b] != want.data[n * want.stride + b]) ++d.wrong, d.n = n, d.b = b;
  return d;
}

/// Bytes of a row with k columns in the layout's kind of matrix.
int64_t row_bytes(const Layout& layout, int64_t k) {
  const std::string_view name = name_of(layout);
  if (name.ends_with(".scales")) return k / 32;
  if (name.ends_with(".bias")) return name.starts_with("trtllm") ? 4 : 2;
  return k / 2;
}

/// The smallest shape from s on that the layout supports.
Shape fitting(const Layout& layout, Shape s) {
  const Shape multiple = multiple_of(layout);
  return {round_up(s.n, multiple.n), round_up(s.b, multiple.b)};
}

}  // namespace

TEST_CASE("compare finds what unpack and a loop over the rows find") {
  const auto cpu = open_cpu();
  std::vector<DeviceCase> cases;
  for (const Layout& layout : layouts)
    for (const CaseRows::Form form : {CaseRows::dense, CaseRows::in_turn, CaseRows::apart}) {
      const int views = form == CaseRows::in_turn ? 2 : 1;
      const Shape padded = fitting(layout, {256, row_bytes(layout, 2880)});
      const Shape real{padded.n / views - 3, std::max<int64_t>(1, padded.b - 5)};
      const uint8_t add = form == CaseRows::dense ? 6 : 0;
      cases.push_back({layout, {form, real, views, 4}, padded, {0, false}, {0, 0x7F, 0, 0x3C}, add});
    }
  const CaseResults r = run_cases(*cpu, cases, 12);
  int64_t wrong = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    INFO(name_of(cases[i].layout) << ", form " << int(cases[i].source.form));
    CHECK(same_report(r.compared[i].pads, r.reports[i]));
    for (int v = 0; v < cases[i].source.views; ++v) {
      CHECK(same_report(r.compared[i].view[v], difference(cases[i], v, r.rows[i], int(i))));
      wrong += r.compared[i].view[v].wrong;
    }
  }
  CHECK(wrong > int64_t(cases.size()));
}

TEST_CASE("cuda makes the CPU's bytes for every layout and golden shape", "[gpu]") {
  if (cuda_device_count() == 0) return;
  const auto gpu = open_cuda(0);
  std::vector<DeviceCase> cases;
  const Shape golden[] = {{64, 128}, {128, 2880}, {192, 640}, {320, 384}, {256, 256}, {2880, 2880}};
  for (const Layout& layout : layouts)
    for (const Shape nk : golden)
      for (const int64_t skew : {0, 8, 5}) {
        const Shape s = fitting(layout, {nk.n, row_bytes(layout, nk.b)});
        cases.push_back({layout, {CaseRows::dense, s, 1, skew}, s, {}, {}});
      }
  check_cases(*gpu, cases);
}

TEST_CASE("cuda keeps row orders, paddings and strides as the CPU does", "[gpu]") {
  if (cuda_device_count() == 0) return;
  const auto gpu = open_cuda(0);
  std::vector<DeviceCase> cases;
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
                       {CaseRows::Form(random() % 5), real, views, one_of({0, 1, 2, 4, 8, 16})},
                       padded,
                       {block, random() % 2 == 0},
                       {0x11, 0x7F, 0xA5, 0x3C},
                       uint8_t(one_of({0, 6}))});
      if (views == 1 && cases.back().source.form != CaseRows::apart) cases.back().source.form = CaseRows::dense;
    }
  check_cases(*gpu, cases);
}

TEST_CASE("cuda keeps rows that share sectors, in turn or dense, as the CPU does", "[gpu]") {
  if (cuda_device_count() == 0) return;
  const auto gpu = open_cuda(0);
  for (const Layout& layout : layouts) DYNAMIC_SECTION(name_of(layout)) {
      std::vector<DeviceCase> cases;
      for (const int64_t block : {0, 1, 8, 32, 64})
        for (const int64_t n : {128, 640, 768})
          for (const int64_t b : {90, 45, 17, 15}) {
            const int i = int(cases.size()), missing = i % 3;
            Shape padded = fitting(layout, {n, std::min(b + i % 2 * 3, row_bytes(layout, 32 * 96))});
            padded.n = round_up(padded.n, 128);
            const Shape real{padded.n / 2 - missing, std::min(b, padded.b)};
            const CaseRows::Form form = i % 4 ? CaseRows::in_turn : CaseRows::dense;
            cases.push_back(
                {layout, {form, real, 2, 2 * (i % 7)}, padded, {block, i % 5 < 2}, {0x11, 0x7F, 0xA5, 0x3C}});
          }
      check_cases(*gpu, cases);
    }
}

TEST_CASE("cuda packs in as little device memory as one matrix needs", "[gpu]") {
  if (cuda_device_count() == 0) return;
  std::vector<DeviceCase> cases;
  for (int i = 0; i < 40; ++i) {
    const Layout layout = layouts[size_t(i) % layouts.size()];
    const Shape s = fitting(layout, {256 * (1 + i % 3), row_bytes(layout, 2880)});
    cases.push_back({layout, {CaseRows::dense, s, 1, 0}, s, {}, {}});
  }
  for (const int64_t memory : {1, 1 << 20, 3 << 20}) check_cases(*open_cuda(0, memory), cases);
}

/// Packs rows of the given lengths with Plain, and checks the checksums of packed bytes and of rows. Every second row
/// has two checksums, and the second part may begin at any byte.
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
