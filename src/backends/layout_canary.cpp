#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/pack/device.h"
#include "src/backends/layout_file.h"
#include "src/base/random.h"
#include "src/checkpoint/field.h"
#include "src/io/sha256.h"

namespace mxfp4 {

namespace {

/// SplitMix64's numbers from `number` << 40 on, as bytes.
std::string stream(uint64_t number, int64_t bytes) {
  static_assert(std::endian::native == std::endian::little);
  std::string out(size_t(bytes + 7) / 8 * 8, '\0');
  for (size_t at = 0; at < out.size(); at += 8) {
    const uint64_t x = random_at(0, (number << 40) + at / 8);
    std::memcpy(out.data() + at, &x, 8);
  }
  out.resize(size_t(bytes));
  return out;
}

/// Rows of the canary's only expert in canonical form: all of gate, then all of up.
std::string canary_rows(const Parameter& p, Part part, uint64_t number, Shape real, int views) {
  if (part != Part::bias) {
    std::string rows = stream(number, views * real.n * real.b / scale_bytes(p));
    if (part == Part::scales)
      std::transform(rows.begin(), rows.end(), rows.begin(), [](char c) { return char(64 + uint8_t(c) % 128); });
    if (p.values) {
      const auto count = int64_t(rows.size());
      rows.resize(size_t(count * scale_bytes(p)));
      p.values->widen(reinterpret_cast<uint8_t*>(rows.data()), count);
    }
    return rows;
  }
  const std::string narrow = stream(number, views * real.n * 2);
  const size_t width = size_t(bits_of(p.dtype)) / 8;
  std::string rows(narrow.size() / 2 * width, '\0');
  for (size_t i = 0; i < narrow.size() / 2; ++i) {
    rows[i * width + width - 2] = narrow[2 * i];
    rows[i * width + width - 1] = char(narrow[2 * i + 1] & 0xBF);
  }
  return rows;
}

std::string packed_canary(const Backend& b, Role role, Part part, Device& cpu) {
  const Parameter& p = b.parameter(role, part);
  Matrix m = form_of(b, p, role, part, b.only, {});
  const std::string rows = canary_rows(p, part, uint64_t(role) * 3 + uint64_t(part), m.real, m.views);
  const auto* data = reinterpret_cast<const uint8_t*>(rows.data());
  for (int v = 0; v < m.views; ++v) m.view[v] = {data + v * m.real.n * m.real.b, m.real.b};
  std::string packed(size_t(packed_bytes(p.layout, m.padded)), '\0');
  const PackItem item{p.layout, m, reinterpret_cast<uint8_t*>(packed.data())};
  cpu.pack({&item, 1}, {});
  return packed;
}

}  // namespace

void check_canary(const Backend& b, const std::string& file) {
  const Json json = Json::parse(b.layout_file);
  if (!json.contains("canary")) return;
  const Document document{file};
  const Field whole(json, document), canary = whole.at("canary");
  const auto cpu = open_cpu();
  for (Role role : roles)
    for (Part part : {Part::codes, Part::scales, Part::bias}) {
      const Parameter& p = b.parameter(role, part);
      if (p.name.empty()) continue;
      const std::string expected = canary.at(p.name.c_str()).text(), is = sha256_of(packed_canary(b, role, part, *cpu));
      if (is != expected)
        canary.at(p.name.c_str())
            .refuse("the layouts pack the canary to {}.., the engine packed it to {}..; learn the file again",
                    is.substr(0, 12), printable(expected.substr(0, 12)));
    }
}

}  // namespace mxfp4
