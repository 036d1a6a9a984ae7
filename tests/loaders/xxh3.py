"""XXH3-128 with seed 0, as 32 hexadecimal digits, high half first: written from its specification, apart from the
library that the program and the loaders use. It hashes about 10 MB/s."""

from operator import xor

from xxh3_short import LONGEST, short_hash
from xxh3_words import LOW32, LOW64, PRIMES32, PRIMES64, SECRET, avalanche, fold, words

STRIPE, BLOCK = 64, 1024  # bytes; a block is 16 stripes


# The secret of stripe n of a block begins at byte 8 n.
BLOCK_KEYS = [word for stripe in range(16) for word in words(SECRET, 8 * stripe, 8)]


def accumulate(sums, stripes, keys):
    """Adds whole stripes, a flat list of words, to the eight sums."""
    products = [(mixed & LOW32) * (mixed >> 32) for mixed in map(xor, stripes, keys)]
    return [(sums[i] + sum(products[i::8]) + sum(stripes[i ^ 1::8])) & LOW64 for i in range(8)]


def scramble(sums):
    return [((s ^ (s >> 47) ^ key) * PRIMES32[0]) & LOW64 for s, key in zip(sums, words(SECRET, 128, 8))]


def merge(sums, offset, start):
    """Merges the eight sums into 64 bits, with the secret from `offset` on."""
    keys = words(SECRET, offset, 8)
    for i in range(0, 8, 2):
        start += fold(sums[i] ^ keys[i], sums[i + 1] ^ keys[i + 1])
    return avalanche(start & LOW64)


def long_hash(data):
    sums = [PRIMES32[2], *PRIMES64[:4], PRIMES32[1], PRIMES64[4], PRIMES32[0]]
    whole = (len(data) - 1) // BLOCK * BLOCK
    for offset in range(0, whole, BLOCK):
        sums = scramble(accumulate(sums, words(data, offset, 128), BLOCK_KEYS))
    rest = (len(data) - 1 - whole) // STRIPE * 8
    sums = accumulate(sums, words(data, whole, rest), BLOCK_KEYS)
    sums = accumulate(sums, words(data, len(data) - STRIPE, 8), words(SECRET, 121, 8))
    return (merge(sums, 11, len(data) * PRIMES64[0] & LOW64),
            merge(sums, 117, ~(len(data) * PRIMES64[1]) & LOW64))


def hexdigest(data):
    low, high = long_hash(data) if len(data) > LONGEST else short_hash(data)
    return f"{high:016x}{low:016x}"
