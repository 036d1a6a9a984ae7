// The way of bytes in vectors to other places by zips, unzips and transposes of vectors, which cost a third of a table
// lookup. Every layout permutes the bits of a byte's place among others, so the compiler finds the fewest stages that
// do it.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

namespace mxfp4 {

enum class Pairing { zip, unzip, transpose };

/// ZIP, UZP or TRN of all pairs of vectors whose numbers differ in bit `slot` alone: the first of a pair takes the
/// instruction's first form, the other its second.
struct Stage {
  Pairing kind = Pairing::zip;
  int element = 0;  // log2 of its bytes
  int slot = 0;

  constexpr Stage inverse() const {
    const Pairing back = kind == Pairing::zip ? Pairing::unzip : kind == Pairing::unzip ? Pairing::zip : kind;
    return {back, element, slot};
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

/// Which bits of a byte's last place, of up to 8, are those of its lane's number and, in `slot`, of its vector's.
struct Bits {
  std::array<int, 4> lane{}, slot{};
  int slots = 0;

  constexpr Bits after(Stage s) const {
    Bits b = *this;
    const int first = s.element, in = slot[s.slot];
    if (s.kind == Pairing::zip)
      std::copy_backward(lane.begin() + first, lane.end() - 1, b.lane.end());
    else if (s.kind == Pairing::unzip)
      std::copy(lane.begin() + first + 1, lane.end(), b.lane.begin() + first);
    b.slot[s.slot] = lane[s.kind == Pairing::zip ? 3 : first];
    b.lane[s.kind == Pairing::unzip ? 3 : first] = in;
    return b;
  }
  /// Whether the four bytes of a word are in one lane of four vectors.
  constexpr bool is_in_planes() const {
    return std::all_of(lane.begin(), lane.end(), [](int bit) { return bit > 1; });
  }
  constexpr bool is_stored() const { return lane == std::array<int, 4>{0, 1, 2, 3}; }
};

struct Network {
  Bits loaded, planes, stored;
  std::array<Stage, 8> stage{};
  int count = 0, mixed = 0;  // stages in all, and those before the bits of words are mixed, in planes
};

/// The shortest network from `loaded` to the packed order, through planes where words are `mixed`.
constexpr Network find_network(const Bits& loaded, bool mixed) {
  struct Step {
    Bits bits;
    bool mixed;
    int before;
    Stage by;
  };
  std::vector<Step> steps = {{loaded, !mixed || loaded.is_in_planes(), -1, {}}};
  std::vector<char> seen(2 * 4096);
  size_t at = 0;
  for (; !(steps[at].mixed && steps[at].bits.is_stored()); ++at)
    for (const Pairing kind : {Pairing::zip, Pairing::unzip, Pairing::transpose})
      for (int element = 0; element < 4; ++element)
        for (int slot = 0; slot < loaded.slots; ++slot) {
          const Stage by{kind, element, slot};
          const Bits bits = steps[at].bits.after(by);
          const bool now = steps[at].mixed || bits.is_in_planes();
          int key = now;
          for (const int bit : bits.lane) key = key * 8 + bit;
          if (seen[key]) continue;
          seen[key] = 1;
          steps.push_back({bits, now, int(at), by});
        }
  Network n{loaded, loaded, steps[at].bits};
  for (int i = int(at); i > 0; i = steps[i].before) ++n.count;
  int i = int(at);
  for (int k = n.count - 1; k >= 0; --k, i = steps[i].before) n.stage[k] = steps[i].by;
  while (mixed && !n.planes.is_in_planes()) n.planes = n.planes.after(n.stage[n.mixed++]);
  return n;
}

}  // namespace mxfp4
