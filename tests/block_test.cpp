// What the CUDA kernels take for granted of every layout, checked where there is no GPU.
#include "kernels/cuda/block.cuh"

#include <catch2/catch.hpp>

#include "kernels/layouts.h"

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
