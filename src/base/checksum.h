// XXH3-128 checksums. A tensor's checksum is the XXH3-128 of the list of its pieces' XXH3-128, sixteen bytes each in
// canonical (big-endian) form, so that pieces can be hashed in any order.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mxfp4 {

using Hash = XXH128_hash_t;

Hash hash_bytes(const void* data, int64_t bytes);
/// Hashes bytes that come block after block.
class Hasher {
 public:
  Hasher();
  void reset() { XXH3_128bits_reset(state_.get()); }
  void take(const void* data, int64_t bytes);
  Hash hash() const { return XXH3_128bits_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

/// A piece of data to hash: `bytes` (at least 1) bytes, whose hash is written to `to`.
struct HashedPiece {
  int64_t bytes;
  Hash* to;
};

/// Hashes chunks of data that arrive in order, in blocks of any size.
class PieceHasher {
 public:
  explicit PieceHasher(std::vector<HashedPiece> pieces) : pieces_(std::move(pieces)) {}
  void operator()(const uint8_t* data, int64_t bytes);
  const std::vector<HashedPiece>& pieces() const { return pieces_; }

 private:
  std::vector<HashedPiece> pieces_;
  size_t next_ = 0;
  int64_t taken_ = 0;  // bytes of the next piece that hasher_ has
  Hasher hasher_;
};

Hash hash_of_pieces(std::span<const Hash> pieces);
/// 32 hexadecimal digits.
std::string to_hex(Hash hash);
/// The inverse of to_hex(); false for any other text.
bool parse_hex(std::string_view text, Hash& hash);
/// The checksum of a whole text, in the form of to_hex().
std::string checksum_of(std::string_view text);

}  // namespace mxfp4
