#include "src/base/checksum.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <new>

namespace mxfp4 {

Hasher::Hasher() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  reset();
}

void PieceHasher::operator()(const uint8_t* data, int64_t bytes) {
  while (bytes > 0) {
    const HashedPiece& piece = pieces_.at(next_);
    const int64_t part = std::min(bytes, piece.bytes - taken_);
    if (part == piece.bytes) {
      *piece.to = hash_bytes(data, part);
      ++next_;
    } else {
      hasher_.take(data, part);
      taken_ += part;
      if (taken_ == piece.bytes) {
        *piece.to = hasher_.hash();
        hasher_.reset();
        taken_ = 0;
        ++next_;
      }
    }
    data += part;
    bytes -= part;
  }
}

Hash hash_of_pieces(std::span<const Hash> pieces) {
  std::vector<XXH128_canonical_t> list(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) XXH128_canonicalFromHash(&list[i], pieces[i]);
  return hash_bytes(list.data(), int64_t(list.size() * sizeof(XXH128_canonical_t)));
}

std::string to_hex(Hash hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

bool parse_hex(std::string_view text, Hash& hash) {
  if (text.size() != 32 || text.find_first_not_of("0123456789abcdef") != text.npos) return false;
  const char* const at = text.data();
  std::from_chars(at, at + 16, hash.high64, 16);
  std::from_chars(at + 16, at + 32, hash.low64, 16);
  return true;
}

std::string checksum_of(std::string_view text) { return to_hex(hash_bytes(text.data(), int64_t(text.size()))); }

}  // namespace mxfp4
