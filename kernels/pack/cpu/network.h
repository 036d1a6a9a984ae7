// The way of bytes in vectors to other places by zips, unzips and transposes of vectors, which cost a third of a table
// lookup. Every layout permutes the bits of a byte's place among others, so the compiler finds the fewest stages that
// do it.
#pragma once

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace mxfp4 {

/// Which bits of a byte's last place, of up to 8, are those of its lane's number and, in `slot`, of its vector's.
struct Bits {
  std::array<int, 4> lane{}, slot{};
  int slots = 0;

  /// Whether the four bytes of a word are in one lane of four vectors.
  constexpr bool is_in_planes() const {
    return std::all_of(lane.begin(), lane.end(), [](int bit) { return bit > 1; });
  }
  constexpr bool is_stored() const { return lane == std::array<int, 4>{0, 1, 2, 3}; }
};

enum class Pairing { zip, unzip, transpose, look_up };

/// ZIP, UZP or TRN of all pairs of vectors whose numbers differ only in bit `slot`. The first vector of a pair gets the
/// instruction's first form, the other the second. Or a table lookup, after which the bits of the lane ascend.
struct Stage {
  Pairing kind = Pairing::zip;
  int element = 0;  // log2 of its bytes
  int slot = 0;
  Bits before{}, after{};

  constexpr Stage(Pairing how, int size, int s, const Bits& bits)
      : kind(how), element(size), slot(s), before(bits), after(bits) {
    auto& lane = after.lane;
    const int in = lane[kind == Pairing::zip ? 3 : element];
    if (kind == Pairing::zip)
      std::copy_backward(lane.begin() + element, lane.end() - 1, lane.end());
    else if (kind == Pairing::unzip)
      std::copy(lane.begin() + element + 1, lane.end(), lane.begin() + element);
    lane[kind == Pairing::unzip ? 3 : element] = std::exchange(after.slot[slot], in);
    if (kind == Pairing::look_up) std::sort(lane.begin(), lane.end());
  }
  constexpr Stage() = default;
  constexpr Stage inverse() const {
    Stage back = *this;
    std::swap(back.before, back.after);
    return back;
  }
  /// Byte i of the first or the other vector of a pair comes from this byte of both.
  constexpr int source(bool other, int i) const {
    int place = other << after.slot[slot];
    for (int k = 0; k < 4; ++k) place |= (i >> k & 1) << after.lane[k];
    int from = (place >> before.slot[slot] & 1) * 16;
    for (int k = 0; k < 4; ++k) from |= (place >> before.lane[k] & 1) << k;
    return from;
  }
  /// Whether it zips bytes, or pairs of bytes, into vectors that bit `side` tells apart.
  constexpr bool zips(int side) const { return kind == Pairing::zip && element < 2 && after.slot[slot] == side; }
};

struct Network {
  Bits loaded, planes, stored;
  std::array<Stage, 8> stage{};
  int count = 0, mixed = 0;  // stages in all, and those before the bits of words are mixed, in planes
  bool ends_in_zip = false;  // of vectors that are stored side by side
};

/// Finds the shortest network from `loaded` to the packed order, through planes if the bits of words are `mixed`. Among
/// the shortest, prefers one that ends in a zip of two vectors that differ in bit `side`: these are stored side by
/// side. The first stage may be a look-up in two vectors that differ in bit `beside`, which are loaded side by side; -1
/// forbids this.
constexpr Network find_network(const Bits& loaded, bool mixed, int side, int beside) {
  struct Step {
    Stage by;
    bool mixed;
    int before, depth;
    constexpr const Bits& bits() const { return by.after; }
  };
  Stage none;
  none.after = loaded;
  std::vector<Step> steps = {{none, !mixed || loaded.is_in_planes(), -1, 0}};
  std::vector<int> seen(2 * 4096, -1);
  size_t at = 0;
  for (; !(steps[at].mixed && steps[at].bits().is_stored()); ++at)
    for (const Pairing kind : {Pairing::zip, Pairing::unzip, Pairing::transpose, Pairing::look_up})
      for (int i = 0; i < 4 * loaded.slots; ++i) {
        const Stage by(kind, i / loaded.slots, i % loaded.slots, steps[at].bits());
        if (kind == Pairing::look_up && (at > 0 || loaded.slot[by.slot] != beside)) continue;
        const Step step{by, steps[at].mixed || by.after.is_in_planes(), int(at), steps[at].depth + 1};
        int key = step.mixed;
        for (const int bit : by.after.lane) key = key * 8 + bit;
        if (seen[key] < 0) {
          seen[key] = int(steps.size());
          steps.push_back(step);
        } else if (Step& old = steps[seen[key]]; by.after.is_stored() && by.zips(side) && old.depth == step.depth) {
          old = step;
        }
      }
  Network n{loaded, loaded, steps[at].bits()};
  n.count = steps[at].depth;
  int i = int(at);
  for (int k = n.count - 1; k >= 0; --k, i = steps[i].before) n.stage[k] = steps[i].by;
  n.ends_in_zip = n.count > 0 && n.stage[n.count - 1].zips(side);
  while (mixed && !n.planes.is_in_planes()) n.planes = n.stage[n.mixed++].after;
  return n;
}

}  // namespace mxfp4
