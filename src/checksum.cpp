#include "src/checksum.h"

#include <fmt/format.h>

#include <algorithm>

namespace mxfp4 {

void PieceHasher::take(const uint8_t* data, int64_t bytes) {
  while (bytes > 0) {
    const int64_t part = std::min(bytes, left_);
    if (part == piece_bytes_) {
      *to_++ = hash_bytes(data, part);
    } else {
      hasher_.take(data, part);
      left_ -= part;
      if (left_ == 0) {
        *to_++ = hasher_.hash();
        hasher_.reset();
        left_ = piece_bytes_;
      }
    }
    data += part, bytes -= part;
  }
}

Hash hash_of_pieces(std::span<const Hash> pieces) {
  std::vector<XXH128_canonical_t> list(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) XXH128_canonicalFromHash(&list[i], pieces[i]);
  return hash_bytes(list.data(), int64_t(list.size() * sizeof(XXH128_canonical_t)));
}

std::string to_hex(Hash hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

}  // namespace mxfp4
