// The message of a refusal.
#pragma once

#include <fmt/format.h>

#include <string>

#include "src/base/error.h"

namespace mxfp4 {

/// The lines of the error that `run` throws; empty if it throws none.
template <class Run>
std::string said_by(Run run) {
  try {
    run();
  } catch (const Error& e) {
    return fmt::format("{}", fmt::join(e.lines, "\n"));
  }
  return {};
}

}  // namespace mxfp4
