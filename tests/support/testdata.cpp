#include "tests/support/testdata.h"

namespace mxfp4 {

std::string testdata() { return MXFP4_TESTDATA; }

}  // namespace mxfp4
