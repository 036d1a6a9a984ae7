// How bits move between the planes of a unit's bytes (route.h).
#pragma once

#include "kernels/layouts/modes.h"
#include "kernels/pack/cpu/numbers.h"
#include "kernels/pack/cpu/route.h"

namespace mxfp4 {

/// The step that mixes the planes of units, in the way of a driver's form.
Route::Step mixed(const ModeLayout& layout, const Numbers& n, Mixing how, bool packing);

}  // namespace mxfp4
