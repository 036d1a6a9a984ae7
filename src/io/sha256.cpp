#include "src/io/sha256.h"

#include "src/io/digest.h"

namespace mxfp4 {

std::string sha256_of(std::string_view bytes) {
  Digest digest;
  digest.take(bytes.data(), int64_t(bytes.size()));
  return digest.hex();
}

}  // namespace mxfp4
