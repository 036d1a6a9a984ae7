// Differences of two JSON documents.
#pragma once

#include <string>

#include "src/base/error.h"
#include "src/base/json.h"

namespace mxfp4 {

/// Names at most 20 differences, such as "FILE: sets[0].ranks[3]: 1, 0 expected", and how many more there are.
void report_differences(const std::string& file, const Json& expected, const Json& is, Problems& problems);

}  // namespace mxfp4
