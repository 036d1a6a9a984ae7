// Groups of stored words between shared memory and registers (block_plan.h). The host can also call these functions.
#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/pack/cuda/block_plan.h"

#ifdef __CUDACC__
#define MXFP4_UNROLL _Pragma("unroll")
#else
#define MXFP4_UNROLL
#endif

namespace mxfp4 {

/// From a multiple of the size of Word, and to one.
template <class Word>
MXFP4_HD Word load_as(const uint8_t* from) {
  Word word;
  std::memcpy(&word, __builtin_assume_aligned(from, sizeof(Word)), sizeof(Word));
  return word;
}
template <class Word>
MXFP4_HD void store_as(uint8_t* to, Word word) {
  std::memcpy(__builtin_assume_aligned(to, sizeof(Word)), &word, sizeof(Word));
}

MXFP4_HD inline uint32_t rotated_right(uint32_t x, uint32_t by) {
#ifdef __CUDA_ARCH__
  return __funnelshift_r(x, x, by);
#else
  return x >> by | x << ((32 - by) & 31);
#endif
}

MXFP4_HD inline uint32_t word_of(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
#ifdef __CUDA_ARCH__
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
#else
  return a | b << 8 | c << 16 | d << 24;
#endif
}

MXFP4_HD inline uint32_t nibbles_swapped(uint32_t x) { return (x >> 4 & 0x0F0F0F0Fu) | (x << 4 & 0xF0F0F0F0u); }

/// Sixteen bytes or fewer of a group.
template <int words>
struct alignas(words * 4) GroupWords {
  uint32_t word[words];
};

/// Byte j of register i becomes byte i of register j.
MXFP4_HD inline void transpose_bytes(uint32_t (&x)[4]) {
#ifdef __CUDA_ARCH__
  const uint32_t low01 = __byte_perm(x[0], x[1], 0x5140), high01 = __byte_perm(x[0], x[1], 0x7362);
  const uint32_t low23 = __byte_perm(x[2], x[3], 0x5140), high23 = __byte_perm(x[2], x[3], 0x7362);
  x[0] = __byte_perm(low01, low23, 0x5410);
  x[1] = __byte_perm(low01, low23, 0x7632);
  x[2] = __byte_perm(high01, high23, 0x5410);
  x[3] = __byte_perm(high01, high23, 0x7632);
#else
  uint32_t y[4] = {};
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) y[j] |= (x[i] >> 8 * j & 0xFF) << 8 * i;
  for (int j = 0; j < 4; ++j) x[j] = y[j];
#endif
}

/// Four lanes of shared memory as a register.
MXFP4_HD inline uint32_t load_lanes(const uint8_t* base, const uint32_t (&offset)[8], int first) {
  return word_of(base[offset[first]], base[offset[first + 1]], base[offset[first + 2]], base[offset[first + 3]]);
}

/// Forms by words; words: of a group; piece: as in BlockPlan.
template <PlanForm form, int piece, int words>
struct WordForm {
  static constexpr bool is_planar = false;
  using Words = GroupWords<words>;

  MXFP4_HD static void pack(const BlockPlan& plan, const uint8_t* shared, uint32_t base,
                            Words (&out)[BlockPlan::most_together]) {
    MXFP4_UNROLL
    for (int j = 0; j < BlockPlan::most_together; ++j)
      if (j < plan.together) pack_one(plan, shared, base + plan.base[j], out[j]);
  }

  /// The inverse of pack(). With shared words, shared memory holds zeros before the first group.
  MXFP4_HD static void unpack(const BlockPlan& plan, const Words (&in)[BlockPlan::most_together], uint8_t* shared,
                              uint32_t base) {
    MXFP4_UNROLL
    for (int j = 0; j < BlockPlan::most_together; ++j)
      if (j < plan.together) unpack_one(plan, in[j], shared, base + plan.base[j]);
  }

 private:
  MXFP4_HD static void pack_one(const BlockPlan& plan, const uint8_t* shared, uint32_t base, Words& out) {
    const uint8_t* const from = shared + (base & ~PlanGroup::swapped);
    Words x;
    if constexpr (form == PlanForm::words) {
      if constexpr (piece == 16) {
        x = load_as<Words>(from + plan.offset[0][0]);
      } else {
        MXFP4_UNROLL
        for (int q = 0; q < words; ++q)
          if constexpr (piece == 4)
            x.word[q] = load_as<uint32_t>(from + plan.offset[q][0]);
          else if constexpr (piece == 2)
            x.word[q] = load_as<uint16_t>(from + plan.offset[q][0]) |
                        uint32_t(load_as<uint16_t>(from + plan.offset[q][2])) << 16;
          else
            x.word[q] = load_lanes(from, plan.offset[q], 0);
      }
      out = {};
      for (int t = 0; t < plan.pack.first[1]; ++t) {
        const Turn& turn = plan.pack.turn[t];
        MXFP4_UNROLL
        for (int q = 0; q < words; ++q) out.word[q] |= rotated_right(x.word[q], turn.by) & turn.mask;
      }
    } else {
      MXFP4_UNROLL
      for (int q = 0; q < words; ++q) {
        uint32_t plane[2] = {load_lanes(from, plan.offset[q], 0), load_lanes(from, plan.offset[q], 4)};
        if (base & PlanGroup::swapped) plane[0] = nibbles_swapped(plane[0]), plane[1] = nibbles_swapped(plane[1]);
        x.word[q] = 0;
        for (int t = plan.pack.first[q]; t < plan.pack.first[q + 1]; ++t) {
          const Turn& turn = plan.pack.turn[t];
          x.word[q] |= rotated_right(turn.from ? plane[1] : plane[0], turn.by) & turn.mask;
        }
      }
      out = x;
    }
  }

  MXFP4_HD static void unpack_one(const BlockPlan& plan, const Words& in, uint8_t* shared, uint32_t base) {
    const uint32_t begin = base & ~PlanGroup::swapped;
    if constexpr (form == PlanForm::words) {
      Words x{};
      for (int t = 0; t < plan.pack.first[1]; ++t) {
        const Turn& turn = plan.pack.turn[t];
        MXFP4_UNROLL
        for (int q = 0; q < words; ++q) x.word[q] |= rotated_right(in.word[q] & turn.read, (32 - turn.by) & 31);
      }
      store_lanes(plan, x, shared + begin);
    } else {
      MXFP4_UNROLL
      for (int q = 0; q < words; ++q) {
        uint32_t plane[2] = {};
        for (int t = plan.pack.first[q]; t < plan.pack.first[q + 1]; ++t) {
          const Turn& turn = plan.pack.turn[t];
          const uint32_t bits = rotated_right(in.word[q] & turn.read, (32 - turn.by) & 31);
          turn.from ? plane[1] |= bits : plane[0] |= bits;
        }
        if (base & PlanGroup::swapped) plane[0] = nibbles_swapped(plane[0]), plane[1] = nibbles_swapped(plane[1]);
        or_lanes(shared, begin, plan.offset[q], 0, plane[0]);
        or_lanes(shared, begin, plan.offset[q], 4, plane[1]);
      }
    }
  }

  MXFP4_HD static void store_lanes(const BlockPlan& plan, const Words& x, uint8_t* to) {
    if constexpr (piece == 16) {
      store_as(to + plan.offset[0][0], x);
    } else {
      MXFP4_UNROLL
      for (int q = 0; q < words; ++q)
        if constexpr (piece == 4) {
          store_as(to + plan.offset[q][0], x.word[q]);
        } else if constexpr (piece == 2) {
          store_as(to + plan.offset[q][0], uint16_t(x.word[q]));
          store_as(to + plan.offset[q][2], uint16_t(x.word[q] >> 16));
        } else {
          MXFP4_UNROLL
          for (int lane = 0; lane < 4; ++lane)
            if (lane < plan.lanes) to[plan.offset[q][lane]] = uint8_t(x.word[q] >> 8 * lane);
        }
    }
  }

  /// ORs four lanes to shared memory. Other threads do so at the same time.
  MXFP4_HD static void or_lanes(uint8_t* shared, uint32_t base, const uint32_t (&offset)[8], int first, uint32_t x) {
    MXFP4_UNROLL
    for (int lane = 0; lane < 4; ++lane) {
      const uint32_t at = base + offset[first + lane], byte = x >> 8 * lane & 0xFF;
#ifdef __CUDA_ARCH__
      if (byte) atomicOr(reinterpret_cast<uint32_t*>(shared + (at & ~3u)), byte << 8 * (at & 3));
#else
      shared[at] |= uint8_t(byte);
#endif
    }
  }
};

/// Planar forms.
template <PlanForm form>
struct PlanarForm {
  static constexpr bool is_planar = true;
  static constexpr int lanes = form == PlanForm::pairs ? 8 : 4, units = 16 / lanes;
  using Words = GroupWords<4>;

  MXFP4_HD static void pack(const BlockPlan& plan, const uint8_t* shared, uint32_t base, Words (&out)[4]) {
    uint32_t x[units][lanes], y[units][lanes];
    MXFP4_UNROLL
    for (int u = 0; u < units; ++u) MXFP4_UNROLL
    for (int lane = 0; lane < lanes; ++lane) x[u][lane] = load_as<uint32_t>(shared + base + plan.offset[u][lane]);
    turn(plan.pack, x, y);
    each_quad([&](int u, int k) {
      uint32_t words[4] = {y[u][4 * k], y[u][4 * k + 1], y[u][4 * k + 2], y[u][4 * k + 3]};
      transpose_bytes(words);
      MXFP4_UNROLL
      for (int c = 0; c < 4; ++c) out[group_of(u, c)].word[word_of_group(u, k, c)] = words[c];
    });
  }

  MXFP4_HD static void unpack(const BlockPlan& plan, const Words (&in)[4], uint8_t* shared, uint32_t base) {
    uint32_t x[units][lanes], y[units][lanes];
    each_quad([&](int u, int k) {
      uint32_t words[4];
      MXFP4_UNROLL
      for (int c = 0; c < 4; ++c) words[c] = in[group_of(u, c)].word[word_of_group(u, k, c)];
      transpose_bytes(words);
      MXFP4_UNROLL
      for (int i = 0; i < 4; ++i) x[u][4 * k + i] = words[i];
    });
    turn(plan.unpack, x, y);
    MXFP4_UNROLL
    for (int u = 0; u < units; ++u) MXFP4_UNROLL
    for (int lane = 0; lane < lanes; ++lane) store_as(shared + base + plan.offset[u][lane], y[u][lane]);
  }

 private:
  /// use(unit, its word).
  template <class Use>
  MXFP4_HD static void each_quad(Use use) {
    MXFP4_UNROLL
    for (int u = 0; u < units; ++u) MXFP4_UNROLL
    for (int k = 0; k < lanes / 4; ++k) use(u, k);
  }
  MXFP4_HD static constexpr int group_of(int u, int c) {
    return form == PlanForm::in_group ? u : form == PlanForm::across ? c : c / 2 + 2 * u;
  }
  MXFP4_HD static constexpr int word_of_group(int u, int k, int c) {
    return form == PlanForm::in_group ? c : form == PlanForm::across ? u : k + c % 2 * 2;
  }

  MXFP4_HD static void turn(const Turns& turns, const uint32_t (&x)[units][lanes], uint32_t (&y)[units][lanes]) {
    MXFP4_UNROLL
    for (int to = 0; to < lanes; ++to) {
      MXFP4_UNROLL
      for (int u = 0; u < units; ++u) y[u][to] = 0;
      MXFP4_UNROLL
      for (int from = 0; from < lanes; ++from)  // registers have no other index
        for (int t = turns.first[to * lanes + from]; t < turns.first[to * lanes + from + 1]; ++t) {
          const Turn& turn = turns.turn[t];
          MXFP4_UNROLL
          for (int u = 0; u < units; ++u) y[u][to] |= rotated_right(x[u][from], turn.by) & turn.mask;
        }
    }
  }
};

/// use(form, bytes): with the form of a plan and the bytes of its groups, an std::integral_constant.
template <PlanForm form, class Use>
auto with_words(const BlockPlan& plan, Use use) {
  constexpr std::integral_constant<int, 16> sixteen;
  constexpr std::integral_constant<int, 4> four;
  if (plan.group == 1) return use(WordForm<form, 1, 1>(), std::integral_constant<int, 1>());
  if constexpr (form == PlanForm::words) {
    if (plan.piece == 16) return use(WordForm<form, 16, 4>(), sixteen);
    if (plan.piece == 4 && plan.group == 16) return use(WordForm<form, 4, 4>(), sixteen);
    if (plan.piece == 4) return use(WordForm<form, 4, 1>(), four);
    if (plan.piece == 2 && plan.group == 16) return use(WordForm<form, 2, 4>(), sixteen);
  }
  return plan.group == 16 ? use(WordForm<form, 1, 4>(), sixteen) : use(WordForm<form, 1, 1>(), four);
}
template <class Use>
auto with_form(const BlockPlan& plan, Use use) {
  constexpr std::integral_constant<int, 16> sixteen;
  if (plan.form == PlanForm::in_group) return use(PlanarForm<PlanForm::in_group>(), sixteen);
  if (plan.form == PlanForm::across) return use(PlanarForm<PlanForm::across>(), sixteen);
  if (plan.form == PlanForm::pairs) return use(PlanarForm<PlanForm::pairs>(), sixteen);
  if (plan.form == PlanForm::words) return with_words<PlanForm::words>(plan, use);
  return with_words<PlanForm::shared_words>(plan, use);
}

}  // namespace mxfp4
