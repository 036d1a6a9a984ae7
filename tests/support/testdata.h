// The path of testdata/. It has a file of its own, so that no other object depends on the path of the sources.
#pragma once

#include <string>

namespace mxfp4 {

std::string testdata();

}  // namespace mxfp4
