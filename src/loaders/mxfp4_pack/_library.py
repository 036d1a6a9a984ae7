"""The functions of the C library: checksums, reads of files into memory, layers as they were before packing, and packing of
experts in the memory of a GPU or of the host."""

import ctypes
import os
import weakref

from ._entries import Refused
from ._program import HERE

NAME = "libmxfp4_pack.so"
VARIABLE = "MXFP4_PACK_LIBRARY"
MISSING = (f"the library {NAME} is missing or older than these loaders, both in this package and in the system's "
           f"library path. Install the wheel, or name the file in {VARIABLE}")


class Expert(ctypes.Structure):
    """mxfp4_pack_expert"""
    _fields_ = [("size", ctypes.c_size_t), ("tensor", ctypes.c_char_p), ("expert", ctypes.c_int64),
                ("piece", ctypes.c_void_p * 2), ("packed", ctypes.c_void_p)]


class Part(ctypes.Structure):
    """mxfp4_pack_part"""
    _fields_ = [("size", ctypes.c_size_t), ("file", ctypes.c_char_p), ("offset", ctypes.c_int64), ("bytes", ctypes.c_int64),
                ("target", ctypes.c_void_p), ("hash", ctypes.c_void_p)]


def library():
    """The C library of the wheel, or else of the system."""
    own = os.path.join(HERE, NAME)
    path = os.environ.get(VARIABLE) or (own if os.path.isfile(own) else NAME + ".1")
    try:
        found = ctypes.CDLL(path)
        found.mxfp4_pack_error.restype = ctypes.c_char_p
        found.mxfp4_pack_hash.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p)
        found.mxfp4_pack_close_set.argtypes = (ctypes.c_void_p,)
        found.mxfp4_pack_free.argtypes, found.mxfp4_pack_free.restype = (ctypes.c_void_p,), None
        found.mxfp4_pack_unpack_layer.argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_int,
                                                  ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t))
        found.mxfp4_pack_pack_experts.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(Expert), ctypes.c_size_t,
                                                  ctypes.c_int, ctypes.c_void_p)
        found.mxfp4_pack_open_reader.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
        found.mxfp4_pack_close_reader.argtypes = (ctypes.c_void_p,)
        found.mxfp4_pack_begin_read.argtypes = (ctypes.c_void_p, ctypes.POINTER(Part), ctypes.c_size_t,
                                                ctypes.POINTER(ctypes.c_int64))
        found.mxfp4_pack_expect_read.argtypes = (ctypes.c_void_p, ctypes.c_int64)
        found.mxfp4_pack_cached_bytes.argtypes = (ctypes.c_void_p, *[ctypes.POINTER(ctypes.c_int64)] * 3)
        found.mxfp4_pack_open_moe.argtypes = found.mxfp4_pack_run_moe.argtypes = (ctypes.c_void_p,) * 3
        found.mxfp4_pack_close_moe.argtypes = (ctypes.c_void_p,)
        found.mxfp4_pack_moe_workspace.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))
        found.mxfp4_pack_finish_read.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))
    except (OSError, AttributeError) as error:
        raise Refused(f"{MISSING} ({error})") from error
    return found


def check(found, status):
    """Raises the error of the library's last call in this thread."""
    if status:
        raise Refused(found.mxfp4_pack_error().decode())


def hexdigest(data: bytes) -> str:
    """XXH3-128 with seed 0, as 32 hexadecimal digits, high half first."""
    found, hash_ = library(), ctypes.create_string_buffer(16)
    check(found, found.mxfp4_pack_hash(data, len(data), hash_))
    return hash_.raw.hex()


def unpacked_layer(directory, number, module, rank):
    """The safetensors file of mxfp4_pack_unpack_layer(), a ctypes array that owns its memory."""
    found, file, size = library(), ctypes.c_void_p(), ctypes.c_size_t()
    check(found, found.mxfp4_pack_unpack_layer(os.fsencode(directory), number, module.encode(), rank, ctypes.byref(file),
                                               ctypes.byref(size)))
    data = (ctypes.c_char * size.value).from_address(file.value)
    weakref.finalize(data, found.mxfp4_pack_free, file)
    return data


class Packer:
    """Packs experts for one rank of a set."""

    def __init__(self, directory, number, rank):
        self.library, self.rank = library(), rank
        self.handle = ctypes.c_void_p()
        check(self.library, self.library.mxfp4_pack_open_set(os.fsencode(directory), number, ctypes.byref(self.handle)))

    def __del__(self):
        if getattr(self, "handle", None):
            self.library.mxfp4_pack_close_set(self.handle)

    def pack(self, tensor, experts, gpu=-1, stream=None):
        """`tensor`: the packed tensor's name. experts: (number, addresses of its pieces, address of its packed bytes).
        All addresses are in the memory of GPU `gpu`, which packs on `stream`. gpu -1: in the host's memory."""
        size = ctypes.sizeof(Expert)
        name = tensor.encode()
        list_ = (Expert * len(experts))(*(Expert(size, name, number, (ctypes.c_void_p * 2)(*pieces), packed)
                                          for number, pieces, packed in experts))
        check(self.library, self.library.mxfp4_pack_pack_experts(self.handle, self.rank, list_, len(experts), gpu, stream))
