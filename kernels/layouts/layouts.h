// The registry of layouts: the lists of all headers, joined to one variant.
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
#include "kernels/layouts/scale_atom.h"
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

template <class... A, class... B>
LayoutList<A..., B...> operator+(LayoutList<A...>, LayoutList<B...>);
template <class... L>
std::variant<L...> variant_of(LayoutList<L...>);

using Layout = decltype(variant_of((PlainLayouts{} + MarlinLayouts{} + FlashinferSm90Layouts{} + ScaleAtomLayouts{} +
                                    TrtllmLayouts{} + TritonHopperLayouts{} + TritonBlackwellLayouts{} +
                                    TritonRocmLayouts{} + DeepgemmLayouts{} + AiterLayouts{} + VllmCpuLayouts{} +
                                    HummingLayouts{} + LayoutList<ByModes>{})));

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
