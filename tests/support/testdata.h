// The path of testdata/, in its own file, so that no other object depends on the path of the sources.
#pragma once

#include <string>

namespace mxfp4 {

std::string testdata();

}  // namespace mxfp4
