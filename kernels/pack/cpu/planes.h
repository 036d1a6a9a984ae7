// The permutation of words' bits where plane i has byte i of each word: bits go from plane to plane by shifts of whole
// planes, some of which insert.
#pragma once

#include <algorithm>
#include <cstdint>

namespace mxfp4 {

/// What one plane gives to a plane of the result: bits `mask` of it, shifted left by `shift`, right where negative.
struct Move {
  int from = 0, shift = 0;
  uint8_t mask = 0;
  bool insert = false;  // by an instruction that keeps the bits which its shift leaves empty
};
struct Moves {
  Move move[32];
  int count = 0;
  int cost = 1000;  // two for an instruction, one for a copy, which the compiler may do without

  /// Later moves write over what earlier ones left in their bits: marks those that can insert, and counts.
  constexpr void mark() {
    uint8_t later = 0;
    cost = move[0].shift != 0 ? 2 : count > 1 && move[1].shift != 0;
    for (int i = count - 1; i > 0; --i) {
      Move& m = move[i];
      const auto written = uint8_t(m.shift > 0 ? 0xFF << m.shift : 0xFF >> -m.shift);
      m.insert = m.shift != 0 && (written & ~(m.mask | later)) == 0;
      later |= m.mask;
      cost += m.shift == 0 || m.insert ? 2 : 4;
    }
  }
};

/// The moves that make plane j, in the order that costs least. `word` is linear over OR.
template <class Word>
constexpr Moves make_moves(Word word, int j) {
  Moves m, best;
  for (int shift = -7; shift < 8; ++shift)
    for (int from = 0; from < 4; ++from) {
      uint8_t mask = 0;
      for (int bit = 0; bit < 8; ++bit) {
        const int to = bit + shift;
        if (to >= 0 && to < 8 && word(1u << (8 * from + bit)) == 1u << (8 * j + to)) mask |= uint8_t(1 << to);
      }
      if (mask) m.move[m.count++] = {from, shift, mask, false};
    }
  const auto before = [](const Move& a, const Move& b) {
    return a.shift < b.shift || (a.shift == b.shift && a.from < b.from);
  };
  do {
    m.mark();
    if (m.cost < best.cost) best = m;
  } while (std::next_permutation(m.move, m.move + m.count, before));
  return best;
}

}  // namespace mxfp4
