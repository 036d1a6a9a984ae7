"""XXH3-128 as 32 hexadecimal digits, high half first, by libxxhash (apt needs it), which is not the project's library."""

import ctypes


class Halves(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


LIBRARY = ctypes.CDLL("libxxhash.so.0")
LIBRARY.XXH3_128bits.restype = Halves
LIBRARY.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def hexdigest(data):
    hash_ = LIBRARY.XXH3_128bits(bytes(data), len(data))
    return f"{hash_.high:016x}{hash_.low:016x}"
