// Builds for other processors than x86-64: these drivers are known by name and never run.
#include "kernels/pack/cpu/driver.h"

namespace mxfp4 {

const Driver avx512_driver = {"avx512", [] { return false; }, {}, {}};
const Driver avx2_driver = {"avx2", [] { return false; }, {}, {}};

}  // namespace mxfp4
