"""XXH3-128 with seed 0 of up to 240 bytes: (low, high)."""

from xxh3_words import LOW32, LOW64, PRIMES32, PRIMES64, SECRET, avalanche, fold, words

LONGEST = 240


def word(data, offset):
    return words(data, offset, 1)[0]


def half(data, offset):
    return int.from_bytes(data[offset:offset + 4], "little")


def avalanche64(h):
    h = (h ^ (h >> 33)) * PRIMES64[1] & LOW64
    h = (h ^ (h >> 29)) * PRIMES64[2] & LOW64
    return h ^ (h >> 32)


def hash_0(data):
    return (avalanche64(word(SECRET, 64) ^ word(SECRET, 72)), avalanche64(word(SECRET, 80) ^ word(SECRET, 88)))


def hash_1_to_3(data):
    n = len(data)
    low = data[n - 1] | n << 8 | data[0] << 16 | data[n >> 1] << 24
    swapped = int.from_bytes(low.to_bytes(4, "little"), "big")
    high = (swapped << 13 | swapped >> 19) & LOW32
    return (avalanche64(low ^ half(SECRET, 0) ^ half(SECRET, 4)), avalanche64(high ^ half(SECRET, 8) ^ half(SECRET, 12)))


def hash_4_to_8(data):
    n = len(data)
    keyed = (half(data, 0) + (half(data, n - 4) << 32)) ^ word(SECRET, 16) ^ word(SECRET, 24)
    product = keyed * (PRIMES64[0] + (n << 2))
    low = product & LOW64
    high = ((product >> 64) + (low << 1)) & LOW64
    low ^= high >> 3
    low = (low ^ (low >> 35)) * 0x9FB21C651E98DF25 & LOW64
    return low ^ (low >> 28), avalanche(high)


def hash_9_to_16(data):
    n = len(data)
    first, last = word(data, 0), word(data, n - 8)
    product = (first ^ last ^ word(SECRET, 32) ^ word(SECRET, 40)) * PRIMES64[0]
    low = ((product & LOW64) + ((n - 1) << 54)) & LOW64
    last ^= word(SECRET, 48) ^ word(SECRET, 56)
    high = ((product >> 64) + last + (last & LOW32) * (PRIMES32[1] - 1)) & LOW64
    low ^= int.from_bytes(high.to_bytes(8, "little"), "big")
    product = low * PRIMES64[1]
    return avalanche(product & LOW64), avalanche(((product >> 64) + high * PRIMES64[1]) & LOW64)


def mix(sums, data, places, secret):
    """Adds two 16-byte pieces of the data, mixed with 32 bytes of the secret."""
    low, high = sums
    a, b = words(data, places[0], 2), words(data, places[1], 2)
    keys = words(SECRET, secret, 4)
    low = (low + fold(a[0] ^ keys[0], a[1] ^ keys[1])) & LOW64
    high = (high + fold(b[0] ^ keys[2], b[1] ^ keys[3])) & LOW64
    return low ^ (sum(b) & LOW64), high ^ (sum(a) & LOW64)


def finish(sums, length):
    low, high = sums
    mixed = low * PRIMES64[0] + high * PRIMES64[3] + length * PRIMES64[1]
    return avalanche((low + high) & LOW64), -avalanche(mixed & LOW64) & LOW64


def hash_17_to_128(data):
    n = len(data)
    sums = n * PRIMES64[0] & LOW64, 0
    for at in range((n - 1) // 32 * 16, -1, -16):
        sums = mix(sums, data, (at, n - 16 - at), 2 * at)
    return finish(sums, n)


def hash_129_to_240(data):
    n = len(data)
    sums = n * PRIMES64[0] & LOW64, 0
    for at in range(0, 128, 32):
        sums = mix(sums, data, (at, at + 16), at)
    sums = avalanche(sums[0]), avalanche(sums[1])
    for at in range(128, n // 32 * 32, 32):
        sums = mix(sums, data, (at, at + 16), at - 125)
    return finish(mix(sums, data, (n - 16, n - 32), 103), n)


def short_hash(data):
    for longest, function in ((0, hash_0), (3, hash_1_to_3), (8, hash_4_to_8), (16, hash_9_to_16), (128, hash_17_to_128)):
        if len(data) <= longest:
            return function(data)
    return hash_129_to_240(data)
