// The options of convert.
#pragma once

#include "src/cli/options.h"
#include "src/convert/convert.h"

namespace mxfp4::cli {

void add_conversion(CLI::App* app, ConvertOptions& o);

/// The options with engine and release separated, and with the tool's own names of backend and checkpoint.
ConvertOptions settled(ConvertOptions o);

/// The architecture of a GPU, by any of its names.
CLI::Validator architecture();
CLI::Validator engine_name();

}  // namespace mxfp4::cli
