"""XXH3-128 with seed 0, as 32 hexadecimal digits, high half first."""

import struct
from operator import xor

try:
    import xxhash
except ImportError:
    xxhash = None

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
PRIMES32 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
PRIMES64 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
LOW32, LOW64 = (1 << 32) - 1, (1 << 64) - 1
STRIPE, BLOCK = 64, 1024  # bytes; a block is 16 stripes
SHORTEST = 241  # bytes: shorter inputs have other rules


def words(data, offset, count):
    return struct.unpack_from(f"<{count}Q", data, offset)


# The secret of stripe n of a block begins at byte 8 n.
BLOCK_KEYS = [word for stripe in range(16) for word in words(SECRET, 8 * stripe, 8)]


def accumulate(sums, stripes, keys):
    """Adds whole stripes, a flat list of words, to the eight sums."""
    products = [(mixed & LOW32) * (mixed >> 32) for mixed in map(xor, stripes, keys)]
    return [(sums[i] + sum(products[i::8]) + sum(stripes[i ^ 1::8])) & LOW64 for i in range(8)]


def scramble(sums):
    return [((s ^ (s >> 47) ^ key) * PRIMES32[0]) & LOW64 for s, key in zip(sums, words(SECRET, 128, 8))]


def merge(sums, offset, start):
    """The eight sums to 64 bits, with the secret from `offset` on."""
    keys = words(SECRET, offset, 8)
    for i in range(0, 8, 2):
        product = (sums[i] ^ keys[i]) * (sums[i + 1] ^ keys[i + 1])
        start += (product & LOW64) ^ (product >> 64)
    start &= LOW64
    start = ((start ^ (start >> 37)) * 0x165667919E3779F9) & LOW64
    return start ^ (start >> 32)


def long_hexdigest(data):
    """Without the xxhash module, for at least SHORTEST bytes."""
    sums = [PRIMES32[2], *PRIMES64[:4], PRIMES32[1], PRIMES64[4], PRIMES32[0]]
    whole = (len(data) - 1) // BLOCK * BLOCK
    for offset in range(0, whole, BLOCK):
        sums = scramble(accumulate(sums, words(data, offset, 128), BLOCK_KEYS))
    rest = (len(data) - 1 - whole) // STRIPE * 8
    sums = accumulate(sums, words(data, whole, rest), BLOCK_KEYS)
    sums = accumulate(sums, words(data, len(data) - STRIPE, 8), words(SECRET, 121, 8))
    low = merge(sums, 11, len(data) * PRIMES64[0] & LOW64)
    high = merge(sums, 117, ~(len(data) * PRIMES64[1]) & LOW64)
    return f"{high:016x}{low:016x}"


def hexdigest(data):
    """None for less than SHORTEST bytes where the xxhash module is not installed."""
    if xxhash is not None:
        return xxhash.xxh3_128_hexdigest(data)
    return long_hexdigest(data) if len(data) >= SHORTEST else None
