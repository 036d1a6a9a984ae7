// Layouts by modes: the meaning of modes, refused modes, and the built-in layouts written as modes.
#include <catch2/catch.hpp>
#include <stdexcept>

#include "kernels/pack/device.h"
#include "tests/support/random_bytes.h"

using namespace mxfp4;

namespace {

template <class T>
BasicMatrix<T> whole(T* data, Shape real, Shape padded) {
  BasicMatrix<T> m;
  m.view[0] = {data, real.b};
  m.real = real;
  m.padded = padded;
  m.pad = {1, 2, 3, 4};
  return m;
}

std::vector<uint8_t> pack(const Layout& layout, const std::vector<uint8_t>& bytes, Shape real, Shape padded) {
  std::vector<uint8_t> packed(size_t(packed_bytes(layout, padded)));
  const PackItem item{layout, whole(bytes.data(), real, padded), packed.data()};
  open_cpu()->pack({&item, 1});
  return packed;
}

Layout by(const ModeLayout& modes) {
  ByModes layout;
  layout.modes = &modes;
  return layout;
}

/// Packs bit by bit, according to the definition.
std::vector<uint8_t> pack_bits(const ModeLayout& modes, const std::vector<uint8_t>& bytes) {
  std::vector<uint8_t> packed(bytes.size() * size_t(modes.copies));
  for (int64_t p = 0; p < int64_t(packed.size()) * 8; ++p) {
    const Step s = modes.source(p);
    const int bit = bytes[size_t(s.row * modes.storage.b + s.bit / 8)] >> s.bit % 8 & 1;
    packed[size_t(p / 8)] |= uint8_t(bit << p % 8);
  }
  return packed;
}

/// Unpacks and compares the result with the source.
void check_inverse(const Layout& layout, std::vector<uint8_t> packed, const std::vector<uint8_t>& bytes, Shape real,
                   Shape padded) {
  std::vector<uint8_t> back(bytes.size());
  const UnpackItem inverse{layout, packed.data(), whole(back.data(), real, padded)};
  PadReport pads;
  const auto cpu = open_cpu();
  cpu->unpack({&inverse, 1}, {&pads, 1});
  CHECK(pads.wrong == 0);
  CHECK(back == bytes);
  packed[packed.size() / 2] ^= 0x10;
  const CompareItem compare{layout, packed.data(), whole(bytes.data(), real, padded)};
  CompareReport report;
  cpu->compare({&compare, 1}, {&report, 1});
  CHECK(report.view[0].wrong + report.pads.wrong == 1);
}

std::string refusal(Shape storage, Modes modes) {
  try {
    ModeLayout(storage, std::move(modes));
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

const Modes marlin_codes = {{4, {{0, 1}}}, {2, {{0, 32}}}, {2, {{8, 0}}},   {2, {{0, 4}}},   {4, {{16, 0}}},
                            {4, {{0, 8}}}, {8, {{1, 0}}},  {92, {{64, 0}}}, {192, {{0, 64}}}};

}  // namespace

TEST_CASE("the modes of marlin.codes are those that modes.h and the manual name") {
  CHECK(modes_of(MarlinCodes{}, {5888, 1536}) == marlin_codes);
}

TEST_CASE("every layout given by its modes makes its bytes, pads too, and is found again") {
  int compared = 0;
  for (const Layout& layout : layouts)
    for (const Shape padded : {Shape{128, 64}, {256, 192}, {512, 4}, {64, 2}, {64, 4}, {320, 64}, {256, 24}}) {
      if (!fits(layout, padded)) continue;
      const Shape storage = storage_of(layout, padded), real = {padded.n - 1, padded.b - 1};
      INFO(name_of(layout) << " " << padded.n << " x " << padded.b);
      const ModeLayout modes(storage, modes_of(layout, storage));
      const auto bytes = random_bytes(real.n * real.b, int(padded.n + padded.b));
      const auto packed = pack(layout, bytes, real, padded);
      CHECK(pack(by(modes), bytes, real, padded) == packed);
      check_inverse(by(modes), packed, bytes, real, padded);
      const auto found = find_equal(modes, padded);
      REQUIRE(found);
      CHECK(pack(*found, bytes, real, padded) == packed);
      ++compared;
    }
  CHECK(compared > 100);
}

TEST_CASE("of bits that are stored several times all copies are written, one is read, the others are compared") {
  const Shape s = {64, 32};
  const Mode rows = {64, {{1, 0}}}, twice = {2, {{0, 0}}};
  const std::vector<Modes> all = {{{256, {{0, 1}}}, twice, rows},                       // each row twice
                                  {{256, {{0, 1}}}, rows, {3, {{0, 0}}}},               // everything three times
                                  {{8, {{0, 1}}}, twice, {32, {{0, 8}}}, rows},         // each byte twice
                                  {{4, {{0, 1}}}, twice, {64, {{0, 4}}}, rows},         // each code in a byte
                                  {{4, {{0, 1}}}, twice, {64, {{0, 4}}}, twice, rows},  // and each of these rows twice
                                  {twice, {256, {{0, 1}}}, rows},                       // each bit twice
                                  {{8, {{0, 1}}}, {2, {{0, 0}, {0, 0}}}, rows, {32, {{0, 8}}}},  // by a list of steps
                                  {{4, {{0, 1}}}, {8, {{1, 0}}}, {2, {{0, 4}}}, twice, {32, {{0, 8}}}, {8, {{8, 0}}}}};
  for (size_t i = 0; i < all.size(); ++i) {
    INFO(i);
    const auto cpu = open_cpu();
    const ModeLayout modes(s, all[i]);
    CHECK(modes.copies == (i == 1 ? 3 : i == 4 ? 4 : 2));
    CHECK(!find_equal(modes, s));
    const auto bytes = random_bytes(s.n * s.b, int(i));
    auto packed = pack_bits(modes, bytes);
    CHECK(pack(by(modes), bytes, s, s) == packed);
    const auto last = int64_t(packed.size() - 1);  // in a copy that is not read
    for (const uint8_t damage : {0, 0x80}) {
      packed[size_t(last)] ^= damage;
      std::vector<uint8_t> back(bytes.size());
      const UnpackItem inverse{by(modes), packed.data(), whole(back.data(), s, s)};
      const CompareItem compare{by(modes), packed.data(), whole(bytes.data(), s, s)};
      PadReport pads;
      CompareReport report;
      cpu->unpack({&inverse, 1}, {&pads, 1});
      cpu->compare({&compare, 1}, {&report, 1});
      const bool reads_it = damage && modes.copy.empty();  // all copies of a bit are in one unit
      CHECK((back == bytes) == !reads_it);
      for (const CopyReport& copies : {pads.copies, report.pads.copies}) {
        CHECK(copies.wrong == (damage ? 1 : 0));
        CHECK(copies.at == (damage ? last : 0));
      }
      CHECK(report.view[0].wrong == reads_it);
      CHECK(pads.wrong == 0);
    }
  }
}

TEST_CASE("modes that are no bijection of whole bytes are refused with the reason") {
  const Shape s = {5888, 1536};
  const auto with = [](size_t mode, Mode m) {
    Modes modes = marlin_codes;
    modes[mode] = std::move(m);
    return modes;
  };
  CHECK(refusal(s, marlin_codes).empty());
  CHECK(refusal({5888, 1538}, marlin_codes) == "modes have 72351744 bits, the storage 72445952");
  CHECK(refusal({0, 1536}, marlin_codes) == "storage of 0 x 1536 bytes; sides are 1 to 1048576");
  CHECK(refusal(s, with(6, {8, {{2, 0}}})) == "modes store some bits twice, and others never");
  CHECK(refusal(s, with(6, {8, {{0, 0}}})) == "modes have 9043968 bits in each copy, the storage 72351744");
  CHECK(refusal({1 << 20, 64}, {{512, {{0, 1}}}, {1 << 20, {{1, 0}}}, {2, {{0, 0}}}}) ==
        "copies of more than 67108864 bytes for an expert");
  CHECK(refusal({128, 64}, {{512, {{0, 1}}}, {2, {{1, 0}}}, {64, {{1, 0}}}}) ==
        "modes store some bits twice, and others never");
  CHECK(refusal({4, 1}, {{8, {{0, 1}}}, {4, {{0, 0}, {1, 0}, {1, 0}, {3, 0}}}}) ==
        "modes store some bits twice, and others never");
  CHECK(refusal(s, with(7, {92, {{128, 0}}})) == "a mode of 92 steps leaves the storage");
  CHECK(refusal(s, with(8, {192, {{0, 68}}})) == "a mode of 192 steps leaves the storage");
  CHECK(refusal(s, with(5, {4, {{0, 4}}})) ==
        "a mode moves units of 32 stored bits by 4 bits; whole bytes or nibbles were expected");
  CHECK(refusal(s, with(0, {4, {{0, 2}}})) ==
        "the first modes make no nibble, and no 1, 2, 4 or 8 stored bytes of whole source bytes; a list may not go on "
        "beyond those");
  CHECK(refusal(s, with(3, {2, {{0, 4}, {0, 4}, {0, 4}}})) == "a mode without its steps");
  CHECK(refusal(s, with(3, {2, {}})) == "a mode without its steps");
  CHECK(refusal(s, with(8, {INT64_MAX, {{0, 0}}})) == "modes have more bits than can be counted");
  CHECK(refusal(s, with(7, {92, {{5888, 0}}})) == "a step of 5888 rows and 0 bits leaves the storage");
}

TEST_CASE("steps become as few modes as they have digits") {
  std::vector<Step> steps;
  for (int i = 0; i < 24; ++i) steps.push_back({i % 4 * 2, i / 4 * 8});
  CHECK(factor(steps) == Modes{{4, {{2, 0}}}, {6, {{0, 8}}}});
  for (Step& s : steps) s = {5 - s.row, s.bit + 16};
  CHECK(factor(steps) == Modes{{2, {{2, 0}, {0, 0}}}, {2, {{4, 0}, {0, 0}}}, {6, {{0, 8}}}});
  CHECK(factor({{0, 0}}) == Modes{{1, {{0, 0}}}});
}
