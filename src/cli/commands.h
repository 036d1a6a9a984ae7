// The registry of subcommands: each adds itself to the command line.
#pragma once

#include "src/cli/options.h"

namespace mxfp4::cli {

using Add = void(CLI::App& root, Common& common, Run& run);
Add add_inspect, add_convert, add_merge, add_verify, add_unpack, add_diff, add_backends, add_layout, add_synth,
    add_clean;

/// In the order in which --help lists them.
inline constexpr Add* commands[] = {add_inspect, add_convert,  add_merge,  add_verify, add_unpack,
                                    add_diff,    add_backends, add_layout, add_synth,  add_clean};

}  // namespace mxfp4::cli
