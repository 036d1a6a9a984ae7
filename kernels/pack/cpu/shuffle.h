// A layout as byte shuffles: groups of 16 words that are neighbours in the packed matrix, and the chunks of source rows
// that they consist of. The permutation of their bits is a set of matrices over GF(2). The compiler computes all of
// these from the layout's at(), bit() and offset().
//
// A group's 64 source bytes are loaded into one vector, chunk after chunk. Vector i has byte i of every word four
// times, once for each byte j of the result: qword lane 4h + j holds words 8h to 8h+7. A matrix per lane picks the bits
// of byte i that belong to byte j, and the four vectors are added. A last permutation assembles the words.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/layouts/layout.h"
#include "kernels/pack/cpu/driver.h"
#include "kernels/pack/cpu/strip.h"

namespace mxfp4 {

struct alignas(64) Bytes64 {
  uint8_t b[64] = {};
};
struct alignas(64) Lanes {
  uint64_t q[8] = {};
};

template <class L>
struct Shuffle {
  static constexpr int words = words_per_tile<L>, groups = words / 16;

  std::array<int, words> order{};                   // the words in packed order
  std::array<std::array<Byte, 32>, groups> at{};    // of a group, the first byte of each source chunk, by row
  std::array<std::array<Bytes64, 4>, groups> in{};  // of a group: index of byte i of lane word in the source vector
  std::array<Bytes64, groups> out{};                // of a group: index in the lanes of each source byte
  std::array<Bytes64, 4> word{};                    // index of byte i of lane word in 16 contiguous words
  Bytes64 lanes{};                                  // index in the lanes of each byte of 16 words
  std::array<Lanes, 4> pack{}, unpack{};            // matrices by source byte and lane
  int chunk = 0;                                    // bytes of a source chunk: 16, 8, 4 or 2; 0: there is no such form
  int run = 0;                                      // words in a row that are neighbours in any matrix: 16, 8 or 4
  bool twins = false;  // groups g and g + groups/2 are the even and the odd 8 bytes of the same four 32-byte chunks

  constexpr Shuffle() {
    if constexpr (words % 16 == 0) {
      sort_words();
      run = find_run();
      chunk = find_chunk();
      if (run == 0) chunk = 0;
      if (chunk == 0) return;
      fill_lanes();
      fill_matrices();
      for (int g = 0; g < groups; ++g) fill_group(g);
      twins = find_twins();
    }
  }

 private:
  // Two shapes tell neighbours in any matrix from neighbours in a narrow one.
  static constexpr Shape shapes[2] = {{3 * L::tile_n, 5 * L::tile_b}, {7 * L::tile_n, 11 * L::tile_b}};
  static constexpr int64_t to(int w, int shape) { return L::offset(shapes[shape], 0, 0, w); }

  constexpr void sort_words() {
    for (int w = 0; w < words; ++w) {
      int i = w;
      for (; i > 0 && to(order[i - 1], 0) > to(w, 0); --i) order[i] = order[i - 1];
      order[i] = w;
    }
  }

  constexpr int find_run() const {
    for (int r = 16; r >= 4; r /= 2) {
      bool all = true;
      for (int i = 0; i < words; ++i)
        for (int s = 0; s < 2; ++s) all = all && to(order[i], s) == to(order[i / r * r], s) + i % r * 4;
      if (all) return r;
    }
    return 0;
  }

  /// Whether every group is made of whole aligned chunks of c bytes.
  constexpr bool chunks_fit(int c) const {
    for (int g = 0; g < groups; ++g) {
      int found = 0;
      for (int i = 0; i < 64; ++i) {
        const Byte b = L::at(order[g * 16 + i / 4], i % 4);
        if (b.b % c == 0) ++found;
        bool first_too = false;
        for (int k = 0; k < 64; ++k) {
          const Byte o = L::at(order[g * 16 + k / 4], k % 4);
          first_too = first_too || (o.n == b.n && o.b == b.b / c * c);
        }
        if (!first_too) return false;
      }
      if (found != 64 / c) return false;
    }
    return true;
  }
  constexpr int find_chunk() const {
    for (int c = 16; c >= 2; c /= 2)
      if (L::tile_b % c == 0 && chunks_fit(c)) return c;
    return 0;
  }

  /// Lane word m of lane 4h + j is word 8h + m.
  static constexpr int lane_word(int i) { return i / 32 * 8 + i % 8; }
  static constexpr int lane_byte(int i) { return i / 8 % 4; }

  constexpr void fill_lanes() {
    for (int i = 0; i < 64; ++i) {
      for (int k = 0; k < 4; ++k) word[k].b[i] = uint8_t(lane_word(i) * 4 + k);
      lanes.b[lane_word(i) * 4 + lane_byte(i)] = uint8_t(i);
    }
  }

  /// Row 7 - t of a matrix says which bits of the source byte make bit t of the result.
  constexpr void fill_matrices() {
    for (int f = 0; f < 32; ++f) {
      const int g = L::bit(f);
      for (int half = 0; half < 2; ++half) {
        pack[g / 8].q[half * 4 + f / 8] |= uint64_t(1) << (g % 8 + 8 * (7 - f % 8));
        unpack[f / 8].q[half * 4 + g / 8] |= uint64_t(1) << (f % 8 + 8 * (7 - g % 8));
      }
    }
  }

  constexpr void fill_group(int g) {
    int chunks = 0;
    for (int i = 0; i < 64; ++i) {
      const Byte b = L::at(order[g * 16 + i / 4], i % 4);
      if (b.b % chunk != 0) continue;
      int c = chunks++;
      for (; c > 0 && (at[g][c - 1].n > b.n || (at[g][c - 1].n == b.n && at[g][c - 1].b > b.b)); --c)
        at[g][c] = at[g][c - 1];
      at[g][c] = b;
    }
    for (int i = 0; i < 64; ++i)
      for (int k = 0; k < 4; ++k) in[g][k].b[i] = uint8_t(place(g, L::at(order[g * 16 + lane_word(i)], k)));
    for (int i = 0; i < 64; ++i) out[g].b[place(g, L::at(order[g * 16 + lane_word(i)], lane_byte(i)))] = uint8_t(i);
  }
  constexpr bool find_twins() const {
    bool found = chunk == 8 && groups % 2 == 0;
    for (int g = 0; found && g < groups / 2; ++g)
      for (int c = 0; c < 8; ++c) {
        const Byte first = at[g][c / 2 * 2], even = at[g][c], odd = at[g + groups / 2][c];
        found = found && even.n == first.n && even.b == first.b + c % 2 * 16 && odd.n == even.n && odd.b == even.b + 8;
      }
    return found;
  }
  /// The place of a source byte in the group's vector; -1 if the group does not contain it.
  constexpr int place(int g, Byte b) const {
    for (int c = 0; c < 64 / chunk; ++c)
      if (at[g][c].n == b.n && at[g][c].b == b.b / chunk * chunk) return c * chunk + b.b % chunk;
    return -1;
  }
};

template <class L>
inline constexpr Shuffle<L> shuffle{};

/// Distances within a strip and within the packed matrix, for one width.
template <class L>
struct Distances {
  static constexpr auto& form = shuffle<L>;
  int64_t from[form.groups][64 / form.chunk], to[form.groups][16 / form.run];
  explicit Distances(Shape s) {
    const int64_t first = L::offset(s, 0, 0, 0);
    for (int g = 0; g < form.groups; ++g) {
      for (int c = 0; c < 64 / form.chunk; ++c) from[g][c] = form.at[g][c].n * s.b + form.at[g][c].b;
      for (int r = 0; r < 16 / form.run; ++r) to[g][r] = L::offset(s, 0, 0, form.order[g * 16 + r * form.run]) - first;
    }
  }
};

/// The place of quarter i of a group's 64 packed bytes. `to`: the place of each run of `run` words.
template <int run>
int64_t quarter(const int64_t* to, int i) {
  return to[i * 4 / run] + i * 16 % (run * 4);
}

/// Whether shuffles are used. Layouts that move runs of bytes are as fast by memcpy; some layouts have no form as
/// shuffles.
template <class L>
constexpr bool has_shuffles() {
  if constexpr (is_plain<L>)
    return false;
  else
    return run_bytes<L>() < 16 && shuffle<L>.chunk > 0;
}

/// The driver of Words::pack<L>, unpack<L> and stream; its entries are null for layouts without shuffles. Words belongs
/// to one file, so that other files share no code for its processor. The driver is a constant, so that nothing runs at
/// program start.
template <class Words>
consteval Driver shuffles_driver(const char* name, bool (*runs_here)()) {
  Driver d{name, runs_here, {}, {}, Words::stream};
  const auto set = [&]<size_t... i>(std::index_sequence<i...>) {
    const auto one = [&]<class L>(size_t at, const L*) {
      if constexpr (has_shuffles<L>()) d.pack[at] = Words::template pack<L>, d.unpack[at] = Words::template unpack<L>;
    };
    (one(i, static_cast<const std::variant_alternative_t<i, Layout>*>(nullptr)), ...);
  };
  set(std::make_index_sequence<std::variant_size_v<Layout>>());
  return d;
}

}  // namespace mxfp4
