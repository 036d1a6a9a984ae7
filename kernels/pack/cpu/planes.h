// The permutation of the bits of words in planes; plane i holds byte i of each word. Bits move from plane to plane by
// shifts of whole planes, some of which insert. Nibbles move by an exchange between two planes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <tuple>
#include <utility>

namespace mxfp4 {

/// The bits that planes give to a plane of the result, all shifted left by `shift` (right if negative).
struct Move {
  int shift = 0;
  std::array<uint8_t, 4> mask{};  // the bits of the result that come from each plane
  bool insert = false;            // by an instruction that keeps the bits which its shift leaves empty

  constexpr uint8_t bits() const { return mask[0] | mask[1] | mask[2] | mask[3]; }
  constexpr int planes() const {
    return int(std::count_if(mask.begin(), mask.end(), [](int m) { return m != 0; }));
  }
  /// The bits of plane i before the shift.
  constexpr uint8_t from(int i) const { return uint8_t(shift > 0 ? mask[i] >> shift : mask[i] << -shift); }
};
struct Moves {
  Move move[15];
  int count = 0;
  int cost = 1000;  // two for an instruction

  /// Marks the moves that can use an insert instruction, because later moves overwrite the surplus bits. Computes the
  /// cost. copy: the cost of writing into a copy of a plane.
  constexpr void mark(int copy) {
    uint8_t later = 0;
    cost = move[0].shift != 0 ? 2 : count > 1 && move[1].shift != 0 ? copy : 0;
    for (int i = count - 1; i >= 0; --i) {
      Move& m = move[i];
      const auto written = uint8_t(m.shift > 0 ? 0xFF << m.shift : 0xFF >> -m.shift);
      m.insert = i > 0 && m.shift != 0 && (written & ~(m.bits() | later)) == 0;
      later |= m.bits();
      cost += 2 * (m.planes() - 1);
      if (i > 0) cost += m.shift == 0 || m.insert ? 2 : 4;
    }
  }
};

/// Whether there are three or more moves, each inserted farther to the left than the one before. Then the moves after
/// the first are combined separately. Other uses of the first move's plane can come before the combined moves are
/// inserted into it.
constexpr bool is_chain(const Moves& m) {
  bool all = m.count > 2 && m.move[0].shift == 0;
  for (int i = 1; i < m.count; ++i)
    all = all && m.move[i].insert && m.move[i].planes() == 1 && m.move[i].shift > m.move[i - 1].shift;
  return all;
}

/// The moves that make plane j, in the order that costs least. `word` is linear over OR. Planes 0 and 2 are made after
/// 1 and 3, and are likely to find the planes that they write into no longer needed: a copy less.
template <class Word>
constexpr Moves make_moves(Word word, int j) {
  Moves m, best;
  for (int shift = -7; shift < 8; ++shift) {
    Move move{shift};
    for (int from = 0; from < 4; ++from) {
      for (int to = std::max(0, shift); to < std::min(8, 8 + shift); ++to)
        if (word(1u << (8 * from + to - shift)) == 1u << (8 * j + to)) move.mask[from] |= uint8_t(1 << to);
      if ((shift == 0 || from == 3) && move.bits()) m.move[m.count++] = std::exchange(move, {shift});
    }
  }
  const auto before = [](const Move& a, const Move& b) {
    return std::tie(a.shift, a.mask) < std::tie(b.shift, b.mask);
  };
  const auto orders = m.count > 5 ? m.move : m.move + m.count;  // many moves have too many orders to try
  std::sort(m.move, m.move + m.count, before);
  do {
    m.mark(j % 2 == 0 ? 1 : 2);
    if (m.cost < best.cost) best = m;
  } while (std::next_permutation(m.move, orders, before));
  return best;
}

/// If bit j of `pairs` is set, the high nibbles of plane j and the low nibbles of plane j + 2 are exchanged.
constexpr uint32_t exchanged(uint32_t w, int pairs) {
  const uint32_t high = (pairs & 1) * 0xF0u | (pairs & 2) * 0x7800u;
  return (w & ~(high | high << 12)) | (w & high) << 12 | (w >> 12 & high);
}

/// How the bits of all words are mixed: by moves, before or after which pairs of planes exchange nibbles.
struct Mixing {
  int before = 0, after = 0;
  Moves plane[4];

  constexpr int cost() const {
    const int exchanges = std::popcount(unsigned(before)) + std::popcount(unsigned(after));
    return plane[0].cost + plane[1].cost + plane[2].cost + plane[3].cost + 6 * exchanges;
  }
};
/// The mixing with the least cost.
template <class Word>
constexpr Mixing make_mixing(Word word) {
  Mixing best;
  for (int way = 0; way < 7; ++way) {
    Mixing m{way < 4 ? way : 0, way < 4 ? 0 : way - 3, {}};
    for (int j = 0; j < 4; ++j)
      m.plane[j] = make_moves([&](uint32_t w) { return exchanged(word(exchanged(w, m.before)), m.after); }, j);
    if (m.cost() < best.cost()) best = m;
  }
  return best;
}

}  // namespace mxfp4
