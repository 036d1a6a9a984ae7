// What verify was asked for, where it can be done.
#pragma once

#include "src/verify/verify.h"

namespace mxfp4 {

struct PackedSet;

/// The level that is meant for a set, or Error{usage} where it cannot be reached.
Level level_of(const VerifyOptions& options, const PackedSet& set);

/// For the highest level of any set.
DeviceChoice device_for(const VerifyOptions& options, Level level);

/// The kernels run on the first of the devices. Those that no GPU can run are an error only where they were asked for.
KernelOptions kernel_options(const VerifyOptions& options, const DeviceChoice& devices);

/// Throws Error{usage} where --save has nothing to write, or no new file in a place of its own.
void check_save(const VerifyOptions& options);

}  // namespace mxfp4
