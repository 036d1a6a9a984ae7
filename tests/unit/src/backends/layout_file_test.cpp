// Layout files: values for scales and copies, compared with hand-computed bytes, and refused files.
#include "src/backends/layout_file.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "kernels/pack/device.h"
#include "src/base/file.h"
#include "tests/support/said.h"
#include "tests/support/testdata.h"

using namespace mxfp4;

namespace {

/// The manual's example: hidden 64, intermediate 32, tensors in the order w13 codes, scales, w2 codes, scales.
Json plain() { return Json::parse(read_text(testdata() + "/fuzz/layout/plain", 1 << 20)); }

/// Exponents of F32: 0.0, powers of two, infinity.
Json floats() {
  Json of = Json::array();
  for (uint32_t s = 0; s < 256; ++s) of.push_back(s << 23);
  return {{"width", 4}, {"of_scales", of}};
}

/// w2's scales as F32, 64 rows of one: with a pad in each row, and a storage with another column and two more rows.
Json wide() {
  Json file = plain();
  Json& t = file["tensors"][3];
  t["dtype"] = "F32", t["torch_dtype"] = "float32", t["shape"] = {3, 66}, t["row_bytes"] = 8;
  t["values"] = floats();
  t["pad"] = {{"row", 1}, {"column", 0x3F800001u}, {"storage", 0xC0000000u}};
  t["storage"] = {{"rows", 66}, {"bytes", 12}};
  t["modes"] = {{32, 0, 1}, {66, 1, 0}, {3, 0, 32}};
  return file;
}

const Backend& read(const Json& file) { return read_layout(file.dump(), "file.json"); }

std::string refusal(const Json& file) {
  return said_by([&] { read(file); });
}

/// The packed bytes of a scale tensor. scales: those of all rows.
std::vector<uint8_t> packed(const Backend& b, Role role, std::vector<uint8_t> scales) {
  const Parameter& p = b.parameter(role, Part::scales);
  Matrix m = form_of(b, p, role, Part::scales, b.only, {});
  const auto count = int64_t(scales.size());
  scales.resize(size_t(count * scale_bytes(p)));
  if (p.values) p.values->widen(scales.data(), count);
  for (int v = 0; v < m.views; ++v) m.view[v] = {scales.data() + v * m.real.n * m.real.b, m.real.b};
  std::vector<uint8_t> out(size_t(packed_bytes(p.layout, m.padded)));
  const PackItem item{p.layout, m, out.data()};
  open_cpu()->pack({&item, 1});
  return out;
}

std::vector<uint32_t> words(const std::vector<uint8_t>& bytes) {
  std::vector<uint32_t> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

}  // namespace

TEST_CASE("scales as F32 in the transposed matrix, with pads that are numbers") {
  std::vector<uint8_t> scales(64);
  for (size_t n = 0; n < 64; ++n) scales[n] = uint8_t(n * 4);
  const auto is = words(packed(read(wide()), Role::w2, scales));
  REQUIRE(is.size() == 3 * 66);
  for (size_t n = 0; n < 66; ++n) {
    CHECK(is[n] == (n < 64 ? uint32_t(n * 4) << 23 : 0xC0000000u));
    CHECK(is[66 + n] == (n < 64 ? 0x3F800001u : 0xC0000000u));
    CHECK(is[132 + n] == 0xC0000000u);
  }
}

TEST_CASE("values of one and of two bytes, and each row three times") {
  Json file = plain();
  Json of = Json::array();
  for (int s = 0; s < 256; ++s) of.push_back(s < 10 ? Json() : Json(255 - s));
  file["tensors"][1]["values"] = {{"width", 1}, {"of_scales", of}};
  Json& t = file["tensors"][3];
  for (int s = 0; s < 256; ++s) of[size_t(s)] = 0x1000 + 256 - s;
  t["values"] = {{"width", 2}, {"of_scales", of}};
  t["row_bytes"] = 2, t["storage"]["bytes"] = 2, t["dtype"] = "BF16", t["torch_dtype"] = "bfloat16";
  t["modes"] = {{16, 0, 1}, {3, 0, 0}, {64, 1, 0}}, t["shape"] = {64, 3};
  const Backend& b = read(file);
  std::vector<uint8_t> scales(128), want(128), narrow(64), thrice;
  for (size_t i = 0; i < 128; ++i) scales[i] = uint8_t(10 + i), want[i] = uint8_t(245 - i);
  CHECK(packed(b, Role::w13, scales) == want);
  for (size_t n = 0; n < 64; ++n) {
    narrow[n] = uint8_t(n);
    const uint32_t value = 0x1100 - uint32_t(n);
    for (int copy = 0; copy < 3; ++copy) thrice.insert(thrice.end(), {uint8_t(value), uint8_t(value >> 8)});
  }
  CHECK(packed(b, Role::w2, narrow) == thrice);
  CHECK(b.parameter(Role::w13, Part::scales).values->domain() == "0x0a to 0xff");
  CHECK(copies_of(b.parameter(Role::w2, Part::scales).layout) == 3);
  CHECK(find_same(b, false) == nullptr);
}

TEST_CASE("pads that repeat values are packed, compared and refused elsewhere") {
  Json file = plain();
  Json& t = file["tensors"][3];
  t["storage"] = {{"rows", 66}, {"bytes", 2}}, t["shape"] = {132};
  t["pad"] = {{"row", 0}, {"column", 0}, {"storage", 9}};
  t["modes"] = {{16, 0, 1}, {66, 1, 0}};
  t["repeats"] = {{{"rows", {64, 2}}, {"bits", {0, 8}}, {"from", {62, 0}}, {"modes", {{8, 0, 1}, {2, 1, 0}}}}};
  const Backend& b = read(file);
  const Parameter& p = b.parameter(Role::w2, Part::scales);
  std::vector<uint8_t> scales(64);
  for (size_t n = 0; n < 64; ++n) scales[n] = uint8_t(n * 3);
  std::vector<uint8_t> is = packed(b, Role::w2, scales);
  REQUIRE(is.size() == 132);
  for (size_t n = 0; n < 66; ++n) {
    CHECK(is[2 * n] == (n < 64 ? n : n - 2) * 3);
    CHECK(is[2 * n + 1] == 9);
  }
  for (const int damage : {0, 0x40}) {
    is[128] ^= uint8_t(damage);
    std::vector<uint8_t> back(64);
    const auto cpu = open_cpu();
    const Matrix m = form_of(b, p, Role::w2, Part::scales, b.only, {});
    const UnpackItem unpack{p.layout, is.data(), {{{back.data(), 1}}, 1, m.real, m.padded, {}, m.pad, 0}};
    const CompareItem compare{p.layout, is.data(), {{{scales.data(), 1}}, 1, m.real, m.padded, {}, m.pad, 0}};
    PadReport pads;
    CompareReport report;
    cpu->unpack({&unpack, 1}, {&pads, 1});
    cpu->compare({&compare, 1}, {&report, 1});
    CHECK(back == scales);
    CHECK(pads.wrong == (damage ? 1 : 0));
    CHECK(report.pads.wrong == (damage ? 1 : 0));
    if (damage) CHECK((pads.n == 64 && pads.b == 0 && pads.is == (186 ^ 0x40) && pads.expected == 186));
  }
  Json& repeat = t["repeats"][0];
  const std::string at = "file.json: tensors[3] (w2_scale).repeats";
  repeat["rows"] = {63, 2};
  CHECK(refusal(file) ==
        at + "[0]: row 63, bit 0 repeats row 62, bit 0; a pad that repeats a place of the layer was expected");
  repeat["rows"] = {64, 2}, repeat["from"] = {64, 0};
  CHECK(refusal(file) ==
        at + "[0]: row 64, bit 0 repeats row 64, bit 0; a pad that repeats a place of the layer was expected");
  repeat["from"] = {62, 0}, repeat["modes"] = {{8, 0, 1}, {3, 1, 0}};
  CHECK(refusal(file) == at + "[0].modes: modes of 16 bits, whole nibbles first, were expected");
  repeat["modes"] = {{8, 0, 1}, {2, 1, 0}}, repeat["bits"] = {2, 8};
  CHECK(refusal(file) == at + "[0].bits: 8 from 2 on, of 16; multiples of 4 were expected");
  repeat["bits"] = {0, 8};
  t["repeats"].push_back(Json(repeat));
  CHECK(refusal(file) == at + ": row 64, bit 0 a second time");
}

TEST_CASE("values become scales again, and what is none is found") {
  ScaleValues::Table of;
  for (uint32_t s = 1; s < 256; ++s)
    if (s != 7) of[s] = s * 0x01010101u;
  const ScaleValues values(4, of);
  CHECK(values.domain() == "0x01 to 0x06, 0x08 to 0xff");
  std::vector<uint8_t> bytes = {1, 255, 6, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, back(4);
  values.widen(bytes.data(), 4);
  CHECK(bytes == std::vector<uint8_t>{1, 1, 1, 1, 255, 255, 255, 255, 6, 6, 6, 6, 8, 8, 8, 8});
  CHECK(values.narrow(bytes.data(), 4, back.data()) == -1);
  CHECK(back == std::vector<uint8_t>{1, 255, 6, 8});
  bytes[9] ^= 1;
  CHECK(values.narrow(bytes.data(), 4, back.data()) == 2);
  std::vector<uint8_t> outside = {7, 0, 0, 0};
  values.widen(outside.data(), 1);
  CHECK(values.narrow(outside.data(), 1, back.data()) == 0);
}

TEST_CASE("what is no such file is refused with the reason") {
  const auto with = [](const char* where, const Json& what) {
    Json file = wide();
    file["tensors"][3][Json::json_pointer(where)] = what;
    return refusal(file);
  };
  const std::string at = "file.json: tensors[3] (w2_scale).";
  CHECK(refusal(wide()).empty());
  CHECK(with("/values/of_scales/6", 5u << 23) ==
        at + "values: scales 0x05 and 0x06 both have 0x2800000; that would be lossy");
  CHECK(with("/pad/column", int64_t(1) << 32) == at + "pad.column: 4294967296, 0 to 4294967295 was expected");
  CHECK(with("/values/width", 3) == at + "values.width: 3, 1, 2 or 4 was expected");
  CHECK(with("/values/of_scales", {1, 2}) == at + "values.of_scales: a list of 256 entries was expected");
  CHECK(with("/values/of_scales/9", -1) == at + "values.of_scales[9]: -1, 0 to 4294967295 was expected");
  CHECK(with("/add", 6) == at + "add: 6 beside values, 0 was expected");
  CHECK(with("/row_bytes", 6) == at + "row_bytes: 6 bytes are no whole values of 4");
  CHECK(with("/storage/bytes", 14) == at + "storage: 14 bytes are no whole values of 4");
  CHECK(with("/shape", {2, 66}) == at + "shape: F32 [2, 66] is not 792 bytes");
  CHECK(with("/modes/2", {2, 0, 0}) == at + "modes: modes have 2112 bits in each copy, the storage 6336");
  Json file = plain();
  file["tensors"][3]["values"] = {{"width", 1}, {"of_scales", floats()["of_scales"]}};
  CHECK(refusal(file) == at + "values: scale 0x01 has 0x800000, which needs more bytes than 1");
  file = plain();
  file["tensors"][0]["values"] = floats();
  CHECK(refusal(file) == "file.json: tensors[0] (w13_weight).values: for codes; only scales have values");
}
