"""XXH3-128 with seed 0, as 32 hexadecimal digits, high half first."""

import ctypes

from ._library import check, library


def hexdigest(data: bytes) -> str:
    found, hash_ = library(), ctypes.create_string_buffer(16)
    check(found, found.mxfp4_pack_hash(data, len(data), hash_))
    return hash_.raw.hex()
