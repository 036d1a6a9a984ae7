// The registry of layouts: one name in the variant each.
#pragma once

#include <optional>
#include <string_view>
#include <variant>

#include "kernels/layouts/aiter.h"
#include "kernels/layouts/deepgemm.h"
#include "kernels/layouts/flashinfer_sm90.h"
#include "kernels/layouts/marlin.h"
#include "kernels/layouts/plain.h"
#include "kernels/layouts/triton_blackwell.h"
#include "kernels/layouts/triton_hopper.h"
#include "kernels/layouts/trtllm.h"
#include "kernels/layouts/vllm_cpu.h"

namespace mxfp4 {

using Layout =
    std::variant<Plain, MarlinCodes, MarlinScales, MarlinBias, MarlinA8Codes, MarlinA8Scales, FlashinferSm90V1Codes,
                 FlashinferSm90V1Scales, FlashinferSm90V2Codes, FlashinferSm90V2Scales, FlashinferSm90Fp4Fp8Codes,
                 Scales128x4, TrtllmCodes, TrtllmScales, TrtllmBias, TritonHopperCodesA, TritonHopperCodesB,
                 TritonHopperCodesC, TritonHopperScalesW4, TritonHopperScalesW8, TritonBlackwellCodes,
                 TritonBlackwellScales, DeepgemmScales, DeepgemmMegaScales, Aiter16x16Codes, Cdna4Scales, VllmCpuCodes,
                 VllmCpuScales>;

inline const char* name_of(const Layout& layout) {
  return std::visit([](auto l) { return decltype(l)::name; }, layout);
}

/// Every layout, in the order of the variant.
inline constexpr auto layouts = []<size_t... i>(std::index_sequence<i...>) {
  return std::array{Layout(std::in_place_index<i>)...};
}
(std::make_index_sequence<std::variant_size_v<Layout>>());

inline std::optional<Layout> find_layout(std::string_view name) {
  for (const Layout& layout : layouts)
    if (name == name_of(layout)) return layout;
  return std::nullopt;
}

/// The shape that the layout stores for a matrix of shape s.
inline Shape storage_of(const Layout& layout, Shape s) {
  return std::visit([s](auto l) { return storage<decltype(l)>(s); }, layout);
}

inline bool fits(const Layout& layout, Shape s) {
  return std::visit([s](auto l) { return fits<decltype(l)>(s); }, layout);
}

/// The multiple of rows and bytes that a matrix must have: the tile, unless the layout pads by itself.
inline Shape multiple_of(const Layout& layout) {
  return std::visit(
      [](auto l) {
        using L = decltype(l);
        return Shape{L::store_n % L::tile_n ? L::tile_n : 1, L::store_b % L::tile_b ? L::tile_b : 1};
      },
      layout);
}

inline int64_t packed_bytes(const Layout& layout, Shape s) {
  const Shape p = storage_of(layout, s);
  return p.n * p.b;
}

}  // namespace mxfp4
