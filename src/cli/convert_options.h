// The options of convert and of each line of its --filelist.
#pragma once

#include "src/cli/options.h"
#include "src/convert/convert.h"

namespace mxfp4::cli {

struct Conversion {
  ConvertOptions options;
  /// The options with engine and release separated, and with the tool's own names of backend and checkpoint.
  ConvertOptions settled() const;
};

/// The required options.
struct NeededOptions {
  CLI::Option *checkpoint, *out, *backend, *engine;
};
NeededOptions add_conversion(CLI::App* app, Conversion& c);

/// The architecture of a GPU, by any of its names.
CLI::Validator architecture();
CLI::Validator engine_name();

}  // namespace mxfp4::cli
