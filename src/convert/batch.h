// convert --filelist: many conversions, one per line.
#pragma once

#include <functional>
#include <string>

#include "src/convert/convert.h"

namespace mxfp4 {

struct BatchOptions {
  std::string filelist;  // "-": standard input
  bool json = false;
};

/// Parses the options of a line. Throws Error{usage}.
using ParseLine = std::function<ConvertOptions(const std::string& line)>;

/// Carries out every line, except empty lines and lines that begin with #. A list without lines is an error. After a
/// failure, the error is reported and the next line starts. Prints a summary at the end, with json one object on
/// stdout. Returns the worst exit code. An interruption ends the list: its line has failed, and later lines have no
/// result.
int convert_all(const BatchOptions& options, const ParseLine& parse);

}  // namespace mxfp4
