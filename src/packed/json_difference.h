// Where two JSON documents differ.
#pragma once

#include <set>
#include <string>

#include "src/base/error.h"
#include "src/base/json.h"

namespace mxfp4 {

/// Names at most 20 places, as "FILE: sets[0].tensors[3].layer: 1, 0 expected", and how many more there are. ignored:
/// keys whose values are not compared, wherever they stand.
void report_differences(const std::string& file, const Json& expected, const Json& is,
                        const std::set<std::string>& ignored, Problems& problems);

}  // namespace mxfp4
