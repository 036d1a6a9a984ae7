// The registry of layouts: one name in the variant each.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <variant>

#include "kernels/layouts/aiter.h"
#include "kernels/layouts/deepgemm.h"
#include "kernels/layouts/flashinfer_sm90.h"
#include "kernels/layouts/humming.h"
#include "kernels/layouts/marlin.h"
#include "kernels/layouts/modes.h"
#include "kernels/layouts/plain.h"
#include "kernels/layouts/triton_blackwell.h"
#include "kernels/layouts/triton_hopper.h"
#include "kernels/layouts/triton_rocm.h"
#include "kernels/layouts/trtllm.h"
#include "kernels/layouts/vllm_cpu.h"

namespace mxfp4 {

/// A layout given at run time. Devices know it by the address of its modes: their owner keeps them as long as the
/// devices.
struct ByModes : PlainRows<1> {
  static constexpr const char* name = "modes";
  const ModeLayout* modes = nullptr;
};

using Layout =
    std::variant<Plain, MarlinCodes, MarlinScales, MarlinBias, MarlinA8Codes, MarlinA8Scales, FlashinferSm90V1Codes,
                 FlashinferSm90V1Scales, FlashinferSm90V2Codes, FlashinferSm90V2Scales, FlashinferSm90Fp4Fp8Codes,
                 Scales128x4, TrtllmCodes, TrtllmScales, TrtllmBias, TritonHopperCodesA, TritonHopperCodesB,
                 TritonHopperCodesC, TritonHopperScalesW8, TritonHopperScalesW8Pairs, TritonBlackwellCodes,
                 TritonBlackwellScales, TritonRocmScales, DeepgemmScales, DeepgemmMegaScales, Aiter16x16Codes,
                 Cdna4Scales, VllmCpuCodes, VllmCpuScales, HummingCodes, HummingWgmmaCodes, HummingFp8Codes,
                 HummingScales, HummingBias, ByModes>;

const char* name_of(const Layout& layout);

/// Every layout that is defined here, in the order of the variant: all but ByModes.
inline constexpr size_t layout_count = std::variant_size_v<Layout> - 1;
extern const std::array<Layout, layout_count> layouts;

std::optional<Layout> find_layout(std::string_view name);

/// The shape that the layout stores for a matrix of shape s.
Shape storage_of(const Layout& layout, Shape s);

bool fits(const Layout& layout, Shape s);

/// The multiple of rows and bytes that a matrix must have: the tile, unless the layout pads its storage.
Shape multiple_of(const Layout& layout);

int64_t packed_bytes(const Layout& layout, Shape s);

/// The number of times that every bit is stored.
int64_t copies_of(const Layout& layout);

/// The modes of a layout for this storage.
Modes modes_of(const Layout& layout, Shape storage);

/// The built-in layout that stores every bit of a matrix of shape s at the same place as `modes`; none if there is
/// none.
std::optional<Layout> find_equal(const ModeLayout& modes, Shape s);

}  // namespace mxfp4
