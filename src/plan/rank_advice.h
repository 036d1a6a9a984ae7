// Whether a set's tensor-parallel size is one that its engine starts with, on GPUs that hold the weights.
#pragma once

#include <string>

#include "src/backends/parallel.h"

namespace mxfp4 {

struct Plan;

/// All weights of the checkpoint, on GPUs as the plan says.
Load load_of(const Plan& plan);

/// A warning that the engine does not start with this tensor-parallel size alone, with the sizes that work. Empty if it
/// starts.
std::string heads_advice(const Plan& plan);

/// A warning that this number of GPUs does not hold the weights, with a size that does. Empty if they hold the weights
/// or no size does.
std::string weights_advice(const Plan& plan);

/// Prints the first applicable warning before anything is written: that engines do not load the model, heads_advice(),
/// or weights_advice().
void advise_ranks(const Plan& plan);

}  // namespace mxfp4
