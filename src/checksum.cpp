#include "src/checksum.h"

#include <fmt/format.h>

namespace mxfp4 {

Hash hash_of_pieces(std::span<const Hash> pieces) {
  std::vector<XXH128_canonical_t> list(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) XXH128_canonicalFromHash(&list[i], pieces[i]);
  return hash_bytes(list.data(), int64_t(list.size() * sizeof(XXH128_canonical_t)));
}

std::string to_hex(Hash hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

}  // namespace mxfp4
