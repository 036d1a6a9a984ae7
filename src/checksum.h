// XXH3-128 checksums. A tensor's checksum is the XXH3-128 of the list of its pieces' XXH3-128, sixteen bytes each in
// canonical (big-endian) form, so that pieces can be hashed in any order.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mxfp4 {

using Hash = XXH128_hash_t;

Hash hash_bytes(const void* data, int64_t bytes);
Hash hash_of_pieces(std::span<const Hash> pieces);
/// 32 hexadecimal digits.
std::string to_hex(Hash hash);

}  // namespace mxfp4
