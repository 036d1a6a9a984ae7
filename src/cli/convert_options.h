// What convert and each line of its --filelist take.
#pragma once

#include "src/cli/options.h"
#include "src/convert/convert.h"

namespace mxfp4::cli {

struct Conversion {
  ConvertOptions options;
  /// With engine and release apart, and backend and checkpoint by their own names.
  ConvertOptions settled() const;
};

/// The options that must be given.
struct NeededOptions {
  CLI::Option *checkpoint, *out, *backend, *engine;
};
NeededOptions add_conversion(CLI::App* app, Conversion& c);

/// The architecture of a GPU, by any of its names.
CLI::Validator architecture();
CLI::Validator engine_name();

}  // namespace mxfp4::cli
