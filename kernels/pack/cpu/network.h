// The way of 64 bytes in four vectors to other places by zips, unzips and transposes of vectors, which cost a third of
// a table lookup. Every layout permutes the 6 bits of a byte's index among a group's, so the compiler finds an order in
// which to load the group's chunks, and two stages that do the rest.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>

namespace mxfp4 {

enum class Pairing { none, zip, unzip, transpose };

/// ZIP, UZP or TRN of two pairs of vectors: the first of a pair takes the instruction's first form, the other its
/// second.
struct Stage {
  Pairing kind = Pairing::none;
  int element = 0;  // log2 of its bytes
  int apart = 1;    // pairs are vectors 0 and 1, 2 and 3; with 2: 0 and 2, 1 and 3

  constexpr Stage inverse() const {
    const Pairing back = kind == Pairing::zip ? Pairing::unzip : kind == Pairing::unzip ? Pairing::zip : kind;
    return {back, element, apart};
  }
  /// Byte i of the first or the other vector of a pair comes from this byte of both.
  constexpr int source(bool other, int i) const {
    const int unit = 1 << element, count = 16 / unit, n = i / unit;
    const int from = kind == Pairing::unzip ? n / (count / 2) : n % 2;
    const int at = kind == Pairing::zip     ? other * count / 2 + n / 2
                   : kind == Pairing::unzip ? n % (count / 2) * 2 + other
                                            : n / 2 * 2 + other;
    return from * 16 + at * unit + i % unit;
  }
};

/// Bit i of a place among 64 bytes is bit bits[i] of the place that the byte came from. Bits 4 and 5 are the vector's.
using Bits = std::array<int, 6>;

constexpr Bits after(Bits b, Stage s) {
  const int vector = s.apart == 1 ? 4 : 5, first = s.element;
  const Bits old = b;
  if (s.kind == Pairing::transpose) {
    b[first] = old[vector];
    b[vector] = old[first];
  } else if (s.kind == Pairing::zip) {
    for (int i = first + 1; i < 4; ++i) b[i] = old[i - 1];
    b[first] = old[vector];
    b[vector] = old[3];
  } else if (s.kind == Pairing::unzip) {
    for (int i = first; i < 3; ++i) b[i] = old[i + 1];
    b[3] = old[vector];
    b[vector] = old[first];
  }
  return b;
}

struct Network {
  Bits loaded{};  // by the order of chunks
  Stage stage[2];
};

constexpr std::array<Stage, 25> all_stages() {
  std::array<Stage, 25> all;
  int count = 1;
  for (const Pairing kind : {Pairing::zip, Pairing::unzip, Pairing::transpose})
    for (int element = 0; element < 4; ++element)
      for (const int apart : {1, 2}) all[count++] = {kind, element, apart};
  return all;
}

/// The network that ends in `goal`. The order of chunks, whose bits are those from `fixed` on, is free: what the stages
/// ask for first.
constexpr std::optional<Network> find_network(const Bits& goal, int fixed) {
  for (const Stage first : all_stages())
    for (const Stage second : all_stages()) {
      const Bits moved = after(after({0, 1, 2, 3, 4, 5}, first), second);
      Bits loaded{};
      for (int i = 0; i < 6; ++i) loaded[moved[i]] = goal[i];
      bool whole = true;  // chunks
      for (int i = 0; i < fixed; ++i) whole = whole && loaded[i] == i;
      if (whole) return Network{loaded, {first, second}};
    }
  return {};
}

}  // namespace mxfp4
