#include "kernels/pack/cpu/mode_strip.h"

#include <algorithm>
#include <cstring>

namespace mxfp4 {

ModeStrips::ModeStrips(const ModeLayout& layout) : layout_(layout) {
  const int64_t row = layout.storage.b;
  for (const auto& p : layout.from) from_.push_back(p.row * row + p.byte);
  if (layout.runs) return;
  for (const auto& p : layout.gather) gather_.push_back(p.row * row + p.byte);
  pack_.resize(size_t(layout.unit));
  unpack_.resize(size_t(layout.unit));
  for (int to = 0; to < int(layout.bit.size()); ++to) {
    const int from = layout.bit[size_t(to)];
    for (int x = 0; x < 256; ++x) {
      pack_[size_t(from / 8)][size_t(x)] |= uint64_t(x >> from % 8 & 1) << to;
      unpack_[size_t(to / 8)][size_t(x)] |= uint64_t(x >> to % 8 & 1) << from;
    }
  }
}

/// move(offset in the strip, offset in the packed matrix) for every unit of strip tn.
template <class Move>
void ModeStrips::each_unit(int64_t tn, Move move) const {
  for (size_t tb = 0; tb < layout_.along.size(); ++tb) {
    const int64_t from = int64_t(tb) * layout_.tile.b, to = layout_.down[size_t(tn)] + layout_.along[tb];
    for (size_t u = 0; u < from_.size(); ++u) move(from + from_[u], to + layout_.to[u]);
  }
}

/// What is stored of a unit that begins at `from`; 0 of one that runs.
uint64_t ModeStrips::packed_unit(const uint8_t* from) const {
  uint64_t unit = 0;
  for (size_t i = 0; i < pack_.size(); ++i) unit |= pack_[i][from[gather_[i]]];
  return unit;
}

void ModeStrips::pack(const uint8_t* strip, int64_t tn, uint8_t* packed) const {
  const auto bytes = size_t(layout_.unit);
  each_unit(tn, [&](int64_t from, int64_t to) {
    if (layout_.runs) {
      std::memcpy(packed + to, strip + from, bytes);
      return;
    }
    const uint64_t unit = packed_unit(strip + from);
    std::memcpy(packed + to, &unit, bytes);
  });
}

void ModeStrips::unpack(const uint8_t* packed, int64_t tn, uint8_t* strip) const {
  const auto bytes = size_t(layout_.unit);
  each_unit(tn, [&](int64_t from, int64_t to) {
    if (layout_.runs) {
      std::memcpy(strip + from, packed + to, bytes);
      return;
    }
    uint64_t unit = 0;
    for (size_t i = 0; i < bytes; ++i) unit |= unpack_[i][packed[to + int64_t(i)]];
    for (size_t i = 0; i < bytes; ++i) strip[from + gather_[i]] = uint8_t(unit >> 8 * i);
  });
}

void ModeStrips::check_copies(const uint8_t* packed, int64_t tn, const uint8_t* strip, CopyReport& report) const {
  each_unit(tn, [&](int64_t from, int64_t to) {
    const uint64_t unit = packed_unit(strip + from);
    const uint8_t* want = layout_.runs ? strip + from : reinterpret_cast<const uint8_t*>(&unit);
    for (const int64_t copy : layout_.copy)
      for (int64_t i = 0; i < layout_.unit; ++i) {
        const int64_t at = copy + to + i;
        if (packed[at] != want[i]) report.at = report.wrong++ ? std::min(report.at, at) : at;
      }
  });
}

}  // namespace mxfp4
