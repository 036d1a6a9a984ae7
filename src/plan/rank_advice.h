// Whether a set's tensor-parallel size is one that its engine starts with, on GPUs that hold the weights.
#pragma once

#include <string>

#include "src/backends/parallel.h"

namespace mxfp4 {

struct Plan;

/// All weights of the checkpoint, on GPUs as the plan says.
Load load_of(const Plan& plan);

/// That the engine does not start with so many ranks alone, and which sizes would do; empty if it does.
std::string heads_advice(const Plan& plan);

/// That so many GPUs do not hold the weights, and which size would do; empty if they do or none would.
std::string weights_advice(const Plan& plan);

/// Says the first of these before anything is written: that engines do not load the model, heads, weights.
void advise_ranks(const Plan& plan);

}  // namespace mxfp4
