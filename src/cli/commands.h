// The subcommands: each adds itself to the command line.
#pragma once

#include "src/cli/options.h"

namespace mxfp4::cli {

void add_inspect(CLI::App& root, Common& common, Run& run);
void add_convert(CLI::App& root, Common& common, Run& run);
void add_verify(CLI::App& root, Common& common, Run& run);
void add_unpack(CLI::App& root, Common& common, Run& run);
void add_diff(CLI::App& root, Common& common, Run& run);
void add_backends(CLI::App& root, Common& common, Run& run);
void add_layout(CLI::App& root, Common& common, Run& run);
void add_synth(CLI::App& root, Common& common, Run& run);
void add_bench(CLI::App& root, Common& common, Run& run);
void add_clean(CLI::App& root, Common& common, Run& run);

}  // namespace mxfp4::cli
