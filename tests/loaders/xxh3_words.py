"""The common part of XXH3's functions for short and long inputs."""

import struct

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
PRIMES32 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
PRIMES64 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
LOW32, LOW64 = (1 << 32) - 1, (1 << 64) - 1


def words(data, offset, count):
    return struct.unpack_from(f"<{count}Q", data, offset)


def avalanche(h):
    h = (h ^ (h >> 37)) * 0x165667919E3779F9 & LOW64
    return h ^ (h >> 32)


def fold(a, b):
    """The exclusive or of the two halves of a product of two words."""
    product = a * b
    return (product & LOW64) ^ (product >> 64)
