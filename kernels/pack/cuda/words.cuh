// Groups of stored words between shared memory and registers (block_plan.h). The host can also call these functions.
#pragma once

#include <cstring>

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
  return x >> (by & 31) | x << (-by & 31);
#endif
}

/// Four of the bytes of two registers: for each, its number in four bits, of 0 to 7.
MXFP4_HD inline uint32_t byte_perm(uint32_t a, uint32_t b, uint32_t select) {
#ifdef __CUDA_ARCH__
  return __byte_perm(a, b, select);
#else
  const uint64_t both = a | uint64_t(b) << 32;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) out |= uint32_t(both >> (select >> 4 * i & 7) * 8 & 0xFF) << 8 * i;
  return out;
#endif
}

MXFP4_HD inline uint32_t word_of(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return byte_perm(byte_perm(a, b, 0x0040), byte_perm(c, d, 0x0040), 0x5410);
}

MXFP4_HD inline uint32_t nibbles_swapped(uint32_t x) { return (x >> 4 & 0x0F0F0F0Fu) | (x << 4 & 0xF0F0F0F0u); }

/// The word with its nibbles in the order.
MXFP4_HD inline uint32_t ordered(uint32_t x, const NibbleOrder& order) {
  const uint32_t low = x & 0x0F0F0F0Fu, high = x >> 4 & 0x0F0F0F0Fu;
  const uint32_t moved = byte_perm(low, high, order.low) + byte_perm(low, high, order.high) * 16;
  return (x & order.stay) | (moved & ~order.stay);
}

/// The stored bits that a turn gives from a plane or lane, and its source bits from a stored word.
MXFP4_HD inline uint32_t turned(const Turn& turn, uint32_t x) { return rotated_right(x, turn.by) & turn.mask; }
MXFP4_HD inline uint32_t turned_back(const Turn& turn, uint32_t word) {
  return rotated_right(word & turn.read, 32 - turn.by);
}

/// The turns of a list behind its first. at: the place of the list's rest, then of the next.
template <class Use>
MXFP4_HD void each_of_rest(const Turns& turns, int list, int& at, Use use) {
  if (!(turns.seconds >> list & 1)) return;
  use(turns.second[list]);
  if (turns.longer >> list & 1) do
      use(turns.rest[at]);
    while (turns.rest[at++].by & Turn::more);
}

/// Sixteen bytes or fewer of a group.
template <int words>
struct alignas(words * 4) GroupWords {
  uint32_t word[words];
};

/// Byte j of register i becomes byte i of register j.
MXFP4_HD inline void transpose_bytes(uint32_t (&x)[4]) {
  const uint32_t low01 = byte_perm(x[0], x[1], 0x5140), high01 = byte_perm(x[0], x[1], 0x7362);
  const uint32_t low23 = byte_perm(x[2], x[3], 0x5140), high23 = byte_perm(x[2], x[3], 0x7362);
  x[0] = byte_perm(low01, low23, 0x5410);
  x[1] = byte_perm(low01, low23, 0x7632);
  x[2] = byte_perm(high01, high23, 0x5410);
  x[3] = byte_perm(high01, high23, 0x7632);
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
      move(plan, x, out);
    } else {
      int at = 0;
      MXFP4_UNROLL
      for (int q = 0; q < words; ++q) {
        uint32_t plane[2] = {load_lanes(from, plan.offset[q], 0), load_lanes(from, plan.offset[q], 4)};
        if (base & PlanGroup::swapped) plane[0] = nibbles_swapped(plane[0]), plane[1] = nibbles_swapped(plane[1]);
        out.word[q] = 0;
        const auto use = [&](const Turn& turn) {
          out.word[q] |= turned(turn, turn.by & Turn::high_plane ? plane[1] : plane[0]);
        };
        use(plan.pack.first[q]);
        each_of_rest(plan.pack, q, at, use);
      }
    }
  }

  /// Form words: lanes to stored words.
  MXFP4_HD static void move(const BlockPlan& plan, const Words& x, Words& out) {
    if (plan.is_by_nibbles) {
      MXFP4_UNROLL
      for (int q = 0; q < words; ++q) out.word[q] = ordered(x.word[q], plan.pack_nibbles);
      return;
    }
    out = {};
    each_turn(plan.pack, [&](const Turn& turn) {
      MXFP4_UNROLL
      for (int q = 0; q < words; ++q) out.word[q] |= turned(turn, x.word[q]);
    });
  }
  /// The inverse, without bits of copies.
  MXFP4_HD static void move_back(const BlockPlan& plan, const Words& in, Words& x) {
    if (plan.is_by_nibbles) {
      MXFP4_UNROLL
      for (int q = 0; q < words; ++q) x.word[q] = ordered(in.word[q], plan.unpack_nibbles);
      return;
    }
    x = {};
    each_turn(plan.pack, [&](const Turn& turn) {
      MXFP4_UNROLL
      for (int q = 0; q < words; ++q) x.word[q] |= turned_back(turn, in.word[q]);
    });
  }
  /// Form words: the turns of every word.
  template <class Use>
  MXFP4_HD static void each_turn(const Turns& turns, Use use) {
    MXFP4_UNROLL
    for (int t = 0; t < BlockPlan::word_lists; ++t) {
      if (t >= turns.lists) return;
      use(turns.first[t]);
    }
    int at = 0;
    each_of_rest(turns, BlockPlan::word_lists - 1, at, use);
  }

  MXFP4_HD static void unpack_one(const BlockPlan& plan, const Words& in, uint8_t* shared, uint32_t base) {
    const uint32_t begin = base & ~PlanGroup::swapped;
    if constexpr (form == PlanForm::words) {
      Words x;
      move_back(plan, in, x);
      store_lanes(plan, x, shared + begin);
    } else {
      int at = 0;
      MXFP4_UNROLL
      for (int q = 0; q < words; ++q) {
        uint32_t plane[2] = {};
        const auto use = [&](const Turn& turn) {
          (turn.by & Turn::high_plane ? plane[1] : plane[0]) |= turned_back(turn, in.word[q]);
        };
        use(plan.pack.first[q]);
        each_of_rest(plan.pack, q, at, use);
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

}  // namespace mxfp4
