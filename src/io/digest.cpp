#include "src/io/digest.h"

#include <openssl/evp.h>

#include "src/base/error.h"

namespace mxfp4 {

Digest::Digest(DigestKind kind) : context_{EVP_MD_CTX_new(), EVP_MD_CTX_free} {
  const bool is_sha1 = kind == DigestKind::sha1;
  if (!context_ || EVP_DigestInit_ex(context_.get(), is_sha1 ? EVP_sha1() : EVP_sha256(), nullptr) != 1)
    fail(ErrorKind::io, "OpenSSL has no {}", is_sha1 ? "SHA-1" : "SHA-256");
}

void Digest::take(const void* data, int64_t bytes) { EVP_DigestUpdate(context_.get(), data, size_t(bytes)); }

std::string Digest::hex() {
  unsigned char sum[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  EVP_DigestFinal_ex(context_.get(), sum, &length);
  return fmt::format("{:02x}", fmt::join(sum, sum + length, ""));
}

}  // namespace mxfp4
