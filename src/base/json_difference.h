// Differences of two JSON documents.
#pragma once

#include <functional>
#include <string>

#include "src/base/error.h"
#include "src/base/json.h"

namespace mxfp4 {

/// Null: the document has nothing there. Two lists of different lengths are given after their entries.
using UseDifference = std::function<void(const std::string& path, const Json* was, const Json* is)>;

/// Calls use() for each place in which two documents differ. The path is "sets[0].rank" with the separator ".".
void each_difference(const Json& was, const Json& is, const char* separator, const UseDifference& use);

/// Names at most 20 differences, such as "FILE: sets[0].ranks[3]: 1, 0 expected", and how many more there are.
void report_differences(const std::string& file, const Json& expected, const Json& is, Problems& problems);

}  // namespace mxfp4
