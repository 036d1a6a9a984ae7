// The request to verify, checked against the given checkpoint and devices.
#pragma once

#include <optional>

#include "src/base/new_file.h"
#include "src/verify/verify.h"

namespace mxfp4 {

struct PackedSet;

/// The level to check a set at. Throws Error{usage} if the requested level is not possible.
Level level_of(const VerifyOptions& options, const PackedSet& set);

/// The devices for a level: the highest of any set.
DeviceChoice device_for(const VerifyOptions& options, Level level);

/// The kernels run on the first device. If the requested device cannot run them, that is an error; under `auto` they
/// run on the CPU.
KernelOptions kernel_options(const VerifyOptions& options, const DeviceChoice& devices);

/// The file of --save; none without that option. Throws Error{usage} if --save has nothing to write, if its file
/// exists, or if the file is inside OUT or the source.
std::optional<NewFile> new_save(const VerifyOptions& options);

}  // namespace mxfp4
