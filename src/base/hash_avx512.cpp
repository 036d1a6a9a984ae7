#include "src/base/hash_wide.h"

namespace mxfp4 {

const WideHash avx512_hash = wide_hash;

}  // namespace mxfp4
