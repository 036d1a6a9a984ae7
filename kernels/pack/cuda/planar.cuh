// Groups of stored words in planar forms between shared memory and registers (block_plan.h). The host can also call
// these functions.
#pragma once

#include <type_traits>

#include "kernels/pack/cuda/words.cuh"

namespace mxfp4 {

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
    const auto use = [&](int to, int from, const Turn& turn) {
      MXFP4_UNROLL
      for (int u = 0; u < units; ++u) y[u][to] |= turned(turn, x[u][from]);
    };
    MXFP4_UNROLL
    for (int to = 0; to < lanes; ++to) {
      MXFP4_UNROLL
      for (int u = 0; u < units; ++u) y[u][to] = 0;
      MXFP4_UNROLL
      for (int from = 0; from < lanes; from += 2) {
        const int list = to * lanes + from;
        if (lanes == 8 && !(turns.filled >> list & 3)) continue;  // of eight lanes most lists are empty, of four few
        use(to, from, turns.first[list]);
        use(to, from + 1, turns.first[list + 1]);
      }
    }
    if (!turns.seconds) return;
    int at = 0;
    MXFP4_UNROLL
    for (int to = 0; to < lanes; ++to) MXFP4_UNROLL
    for (int from = 0; from < lanes; ++from)
      each_of_rest(turns, to * lanes + from, at, [&](const Turn& turn) { use(to, from, turn); });
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
