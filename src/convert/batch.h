// convert --filelist: many conversions, one a line.
#pragma once

#include <functional>
#include <string>

#include "src/convert/convert.h"

namespace mxfp4 {

struct BatchOptions {
  std::string filelist;  // "-": standard input
  bool fail_fast = false, allow_empty = false, json = false;
};

/// The options of a line; throws Error{usage}.
using ParseLine = std::function<ConvertOptions(const std::string& line)>;

/// Carries out every line that is not empty and does not begin with #; a list of none is an error unless allow_empty.
/// One that fails is reported, and the next is
/// begun unless fail_fast. Ends with a summary; with json one object on stdout. Returns the worst exit code. An
/// interruption ends it at once, by its Error.
int convert_all(const BatchOptions& options, const ParseLine& parse);

}  // namespace mxfp4
