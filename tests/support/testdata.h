// Where testdata/ is. In a file of its own, so that no other object depends on where the sources lie.
#pragma once

#include <string>

namespace mxfp4 {

std::string testdata();

}  // namespace mxfp4
