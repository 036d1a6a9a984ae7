// --published of convert and verify.
#pragma once

#include "src/cli/options.h"

namespace mxfp4::cli {

/// effect: the begin of the option's description.
inline CLI::Option* add_published(CLI::App* app, std::string& list, const std::string& effect) {
  return app->add_option("--published", list, effect + ": a SHA256SUMS, or the hub's list of files in JSON")
      ->type_name("FILE");
}

}  // namespace mxfp4::cli
