// Tests the CUDA kernels' function for a unit of a mode layout, on the host and on a GPU.
#include "kernels/pack/cuda/unit.cuh"

#include <catch2/catch.hpp>
#include <numeric>

#include "tests/support/mode_cases.h"

using namespace mxfp4;

namespace {

/// The number of errors, and the first.
struct Seen {
  int64_t wrong = 0, first = 0;
  uint8_t is = 0, expected = 0;
  void add(int64_t place, uint8_t is_byte, uint8_t expected_byte) {
    if (wrong++ == 0 || place < first) first = place, is = is_byte, expected = expected_byte;
  }
};

/// The reports that kernels write to GPU memory.
struct Found {
  Seen *pads, *copies;
  void pad(int64_t place, uint8_t is, uint8_t expected) const { pads->add(place, is, expected); }
  void copy(int64_t place) const { copies->add(place, 0, 0); }
};

/// Runs the kernels' threads on the host in reverse order.
class UnitsOnHost final : public Device {
 public:
  std::string name() const override { return "units"; }
  uint8_t* allocate(int64_t) override { return nullptr; }
  void release(uint8_t*) override {}

  void pack(std::span<const PackItem> items, std::span<Checksum>) override {
    for (const PackItem& item : items) {
      set_batch(item, const_cast<uint8_t*>(item.packed));
      each_unit(item, [&](auto word, const UnitMap& map, uint32_t i) {
        pack_unit<decltype(word)>(batch_, batch_.items[0], map, i);
      });
    }
  }

  void unpack(std::span<const UnpackItem> items, std::span<PadReport> reports) override {
    for (size_t k = 0; k < items.size(); ++k) {
      Seen pads, copies;
      set_batch(items[k], const_cast<uint8_t*>(items[k].packed));
      each_unit(items[k], [&](auto word, const UnitMap& map, uint32_t i) {
        unpack_unit<decltype(word)>(batch_, batch_.items[0], map, i, Found{&pads, &copies});
      });
      const int64_t row = batch_.storage.b;
      reports[k] = {pads.wrong, pads.first / row, pads.first % row,
                    pads.is,    pads.expected,    {copies.wrong, copies.first}};
    }
  }

  /// Compares by unpacking, because the kernel that compares has no layout.
  void compare(std::span<const CompareItem> items, std::span<CompareReport> reports) override {
    for (size_t k = 0; k < items.size(); ++k) {
      const CompareItem& item = items[k];
      const Matrix& m = item.matrix;
      if (item.fetch) item.fetch(0, m.real.n);
      std::vector<uint8_t> rows(size_t(m.views * m.real.n * m.real.b));
      UnpackItem unpacked{item.layout, item.packed, {{}, m.views, m.real, m.padded, m.order, m.pad, m.add}};
      for (int v = 0; v < m.views; ++v) unpacked.matrix.view[v] = {rows.data() + v * m.real.n * m.real.b, m.real.b};
      reports[k] = {};
      unpack({&unpacked, 1}, {&reports[k].pads, 1});
      for (int v = 0; v < m.views; ++v)
        for (int64_t n = 0; n < m.real.n; ++n)
          for (int64_t b = 0; b < m.real.b; ++b)
            if (unpacked.matrix.view[v].data[n * m.real.b + b] != m.view[v].data[n * m.view[v].stride + b] &&
                reports[k].view[v].wrong++ == 0)
              reports[k].view[v].n = n, reports[k].view[v].b = b;
    }
  }

 private:
  template <class Item>
  void set_batch(const Item& item, uint8_t* packed) {
    const auto& m = item.matrix;
    batch_.matrix = {{}, m.views, m.real, m.padded, m.order, m.pad, m.add};
    batch_.storage = storage_of(item.layout, m.padded);
    for (int v = 0; v < m.views; ++v) {
      batch_.matrix.view[v].stride = m.view[v].stride;
      batch_.items[0].view[v] = const_cast<uint8_t*>(m.view[v].data);
    }
    batch_.items[0].packed = packed;
  }

  template <class Item, class Move>
  static void each_unit(const Item& item, Move move) {
    const Units units(*std::get<ByModes>(item.layout).modes);
    for (uint32_t i = units.map.count; i-- > 0;) {
      if (units.map.bytes == 1) move(uint8_t(), units.map, i);
      if (units.map.bytes == 2) move(uint16_t(), units.map, i);
      if (units.map.bytes == 4) move(uint32_t(), units.map, i);
      if (units.map.bytes == 8) move(uint64_t(), units.map, i);
    }
  }

  Batch batch_{};
};

/// The place of each unit in storage, in the order of units' numbers.
std::vector<uint32_t> stored_at(const UnitMap& map) {
  std::vector<uint32_t> to;
  for (uint32_t i = 0; i < map.count; ++i) to.push_back(map.place(i).to);
  return to;
}

}  // namespace

TEST_CASE("units are what the CPU packs and unpacks, of every layout by modes") {
  const ModeCases all = all_mode_cases();
  UnitsOnHost units;
  check_cases(units, all.cases, 12);
  CHECK(all.cases.size() > 300);
}

TEST_CASE("neighbours are stored together, and then come from the same rows") {
  const Shape s = {5888, 1536};
  const ModeLayout marlin(s, modes_of(MarlinCodes{}, s));
  const Units units(marlin);
  CHECK(units.map.bytes == 4);
  CHECK(units.map.turns <= 8);
  CHECK(units.low.size() == 128);
  CHECK(units.high.size() == 92 * 192);
  const auto to = stored_at(units.map);
  for (uint32_t i = 0; i < 128; ++i) CHECK(to[i] == 4 * i);
  CHECK((units.high[1].row == 0 && units.high[1].byte == 8));
  const ModeLayout plain(s, modes_of(Plain{}, s));
  CHECK(Units(plain).map.bytes == 8);
  CHECK(Units(plain).map.turns == 1);
  CHECK(Units(plain).high.size() * Units(plain).low.size() == size_t(s.n * s.b / 8));
}

TEST_CASE("cuda makes the CPU's bytes and reports of every layout by modes", "[gpu]") {
  if (cuda_device_count() == 0) return;
  const ModeCases all = all_mode_cases();
  check_cases(*open_cuda(0), all.cases);
  check_cases(*open_cuda(0, 1), all.cases);
}

TEST_CASE("cuda packs layouts by modes beside built-in ones, at true size", "[gpu]") {
  if (cuda_device_count() == 0) return;
  ModeCases all;
  const Shape s = {5888, 1536}, f32 = {5888, 384};
  const Mode twice = {2, {{0, 0}}};
  all.add(s, {{4, {{0, 1}}}, {8, {{1, 0}}}, {3072, {{0, 4}}}, {736, {{8, 0}}}});
  all.add(s, {{8, {{0, 1}}}, {5888, {{1, 0}}}, {1536, {{0, 8}}}});
  all.add(f32, {{32, {{0, 1}}}, {5888, {{1, 0}}}, {96, {{0, 32}}}});
  all.add(s, {{12288, {{0, 1}}}, twice, {5888, {{1, 0}}}});
  for (const Layout& layout : {Layout(MarlinCodes{}), Layout(FlashinferSm90V2Codes{}), Layout(HummingCodes{})}) {
    all.add(s, modes_of(layout, s));
    DeviceCase built_in = all.cases.back();
    built_in.layout = layout;
    built_in.padded = s;
    built_in.pad = {1, 2, 3, 4};  // these have pads of one byte
    all.cases.push_back(built_in);
  }
  check_cases(*open_cuda(0), all.cases);
}
