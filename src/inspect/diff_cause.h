// Guesses why one expert's packed bytes differ from a plan's bytes, by trying the usual mistakes in turn.
#pragma once

#include "kernels/pack/device.h"
#include "src/plan/plan.h"

namespace mxfp4 {

/// One expert's slice of a packed tensor on both sides, of the same size.
struct TwoSlices {
  const uint8_t *ours, *theirs;
  const Backend* their_backend;  // null: not known
};

/// The likely cause, in words, for different slices of t; `ours` is packed by the plan. Empty if no cause is found.
std::string likely_cause(const Plan& plan, const PackedTensor& t, int64_t expert, Device& device,
                         const TwoSlices& slices);

}  // namespace mxfp4
