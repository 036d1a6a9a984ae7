// Properties of all layouts that the CUDA kernels need, checked without a GPU.
#include "kernels/pack/cuda/block.cuh"

#include <catch2/catch.hpp>
#include <vector>

#include "kernels/layouts/layouts.h"
#include "kernels/pack/cuda/interleave.h"

using namespace mxfp4;

TEST_CASE("every layout permutes address bits, as the CUDA kernels take for granted") {
  for (const Layout& layout : layouts)
    std::visit(
        [](auto l) {
          using L = decltype(l);
          INFO(L::name);
          if constexpr (!is_plain<L>) CHECK(is_regular<L>());
        },
        layout);
}

namespace {

/// Alternating rows of gate and up, 90 bytes each.
Matrix in_turn(int64_t padded_n, RowOrder order) {
  static const uint8_t bytes[1024 * 90] = {};
  Matrix m;
  m.view[0] = {bytes, 180};
  m.view[1] = {bytes + 90, 180};
  m.views = 2;
  m.real = {padded_n / 2, 90};
  m.padded = {padded_n, 96};
  m.order = order;
  return m;
}

}  // namespace

TEST_CASE("a block takes gate and up rows that lie in turn in memory's order") {
  using L = Scales128x4;
  for (const int64_t block : {0, 1, 2, 8, 16, 64})
    for (const bool up_first : {false, true}) {
      const Matrix m = in_turn(1024, {block, up_first});
      const Interleave interleave = interleave_of<L>(m);
      const int rows = BlockSize<L>::rows, all = interleave.half ? 2 * rows : rows;
      INFO(block << ", " << up_first);
      CHECK((interleave.half > 0) == (block == 0));
      std::vector<const uint8_t*> places(size_t(all), nullptr);
      for (int r = 0; r < all; ++r) {
        const RowSource source = m.source(int64_t(rows) + r / rows * interleave.half + r % rows);
        const Rows& view = m.view[source.view];
        places.at(size_t(interleave.place(r, up_first))) = view.data + source.row * view.stride;
      }
      for (int i = 1; i < all; ++i) CHECK(places[size_t(i)] == places[size_t(i - 1)] + 90);
    }
}

TEST_CASE("a block takes other rows as they come") {
  const auto as_they_come = [](const Matrix& m) {
    const Interleave interleave = interleave_of<Scales128x4>(m);
    return interleave.rows == 0 && interleave.half == 0 && interleave.place(77, true) == 77;
  };
  CHECK(as_they_come(in_turn(192, {})));  // a tile would cross the halves
  CHECK(as_they_come(in_turn(768, {96, false})));
  CHECK(as_they_come(in_turn(1024, {128, false})));
  Matrix m = in_turn(1024, {});
  CHECK(!as_they_come(m));
  m.view[0].stride = m.view[1].stride = 90;
  CHECK(as_they_come(m));
  m = in_turn(1024, {});
  m.real.b = 96, m.view[0].stride = m.view[1].stride = 192;  // each row in separate sectors
  CHECK(as_they_come(m));
}
