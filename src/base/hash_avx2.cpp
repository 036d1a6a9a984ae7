#include "src/base/hash_wide.h"

namespace mxfp4 {

const WideHash avx2_hash = wide_hash;

}  // namespace mxfp4
