// Builds for other processors than x86-64: the driver is known by name and never runs.
#include "kernels/driver.h"

namespace mxfp4 {

const Driver avx512_driver = {"avx512", [] { return false; }, {}, {}};

}  // namespace mxfp4
