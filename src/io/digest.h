// SHA-256 and SHA-1 of bytes that are added in order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

struct evp_md_ctx_st;  // OpenSSL's

namespace mxfp4 {

enum class DigestKind { sha256, sha1 };

class Digest {
 public:
  explicit Digest(DigestKind kind = DigestKind::sha256);
  void take(const void* data, int64_t bytes);
  /// The hexadecimal digits of the digest of all added bytes: 64 or 40. To be called once.
  std::string hex();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

}  // namespace mxfp4
