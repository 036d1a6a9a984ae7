#include "kernels/pack/cpu/mode_pieces.h"

#include <algorithm>

namespace mxfp4 {

namespace {

constexpr int64_t most_tile = 64 << 10;  // bytes; what describes a larger one leaves the caches
constexpr int64_t least_run = 64;        // of bytes that stay together: copied sooner than shuffled
constexpr size_t worth = 3;              // a window takes as long as so many bytes one by one, or units that run
constexpr uint64_t all = ~uint64_t(0);

}  // namespace

struct ModePieces::Byte {
  int64_t to, from;  // stored; in the strip
};

ModePieces::ModePieces(const ModeLayout& layout) {
  const int64_t row = layout.storage.b, tile = int64_t(layout.from.size()) * layout.unit;
  if (tile > most_tile || (layout.runs && layout.unit >= least_run)) return;
  std::vector<Byte> bytes;
  for (size_t u = 0; u < layout.from.size(); ++u)
    for (int64_t j = 0; j < layout.unit; ++j) {
      const auto in_unit = layout.runs ? ModeLayout::Place{0, j} : layout.gather[size_t(j)];
      bytes.push_back(
          {layout.to[u] + j, (layout.from[u].row + in_unit.row) * row + layout.from[u].byte + in_unit.byte});
    }
  std::sort(bytes.begin(), bytes.end(), [](const Byte& a, const Byte& b) { return a.to < b.to; });
  for (size_t first = 0, next = 0; first < bytes.size(); first = next) {
    while (next < bytes.size() && next - first < 64 && bytes[next].to == bytes[first].to + int64_t(next - first))
      ++next;
    add_piece(&bytes[first], int64_t(next - first));
  }
  if (windows.size() * worth > (layout.runs ? layout.from.size() : bytes.size())) pieces.clear();
  if (!layout.runs) find_turns(layout);
}

/// A window begins at the first byte that none before it has.
void ModePieces::add_piece(const Byte* bytes, int64_t count) {
  uint64_t left = all >> (64 - count);
  pieces.push_back({bytes->to, left, 0});
  while (left) {
    Window w;
    w.at = INT64_MAX;
    for (int64_t b = 0; b < count; ++b)
      if (left >> b & 1) w.at = std::min(w.at, bytes[b].from);
    for (int64_t b = 0; b < count; ++b) {
      const int64_t in_window = bytes[b].from - w.at;
      if (!(left >> b & 1) || in_window >= 64) continue;
      w.index[size_t(b)] = uint8_t(in_window);
      w.back[size_t(in_window)] = uint8_t(b);
      w.stored |= uint64_t(1) << b;
      w.taken |= uint64_t(1) << in_window;
    }
    left &= ~w.stored;
    windows.push_back(w);
  }
  pieces.back().windows = windows.size();
}

void ModePieces::find_turns(const ModeLayout& layout) {
  const int bits = int(layout.unit) * 8;
  for (int by = 0; by < 64; ++by) {
    Turn turn{0, by};
    for (int to = 0; to < 64; ++to)
      if (to / bits * bits + layout.bit[size_t(to % bits)] == (to + by) % 64) turn.mask |= uint64_t(1) << to;
    if (turn.mask) turns.push_back(turn);
  }
  if (turns.size() == 1 && turns[0].mask == all && turns[0].by == 0) turns.clear();
}

}  // namespace mxfp4
