"""Reads files with the C library. Prints their bytes, and how many of these the page cache had before and has now.
Usage: read_all.py [--into-memory] LIBRARY EXPECTED-BYTES FILE.. Without --into-memory the files are only hashed.
EXPECTED-BYTES 0: the library gets no expectation."""

import ctypes
import mmap
import os
import sys

THREADS = 12  # as loaders have


class Part(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("file", ctypes.c_char_p), ("offset", ctypes.c_int64), ("bytes", ctypes.c_int64),
                ("target", ctypes.c_void_p), ("hash", ctypes.c_void_p)]


def check(status):
    if status:
        sys.exit(f"error: {library.mxfp4_pack_error().decode()}")


def read(file):
    size = os.stat(file).st_size
    memory = ctypes.c_char.from_buffer(mmap.mmap(-1, size)) if into_memory else None
    places = (ctypes.addressof(memory), None) if into_memory else (None, ctypes.addressof(hash_))
    part = Part(ctypes.sizeof(Part), os.fsencode(file), 0, size, *places)
    check(library.mxfp4_pack_begin_read(reader, ctypes.byref(part), ctypes.c_size_t(1), ctypes.byref(number)))
    check(library.mxfp4_pack_finish_read(reader, number, None))


arguments = sys.argv[1:]
into_memory = arguments[0] == "--into-memory"
path, expected, *files = arguments[into_memory:]
library = ctypes.CDLL(path)
library.mxfp4_pack_error.restype = ctypes.c_char_p
reader, number, hash_ = ctypes.c_void_p(), ctypes.c_int64(), ctypes.create_string_buffer(16)
check(library.mxfp4_pack_open_reader(-1, THREADS, ctypes.byref(reader)))
if int(expected):
    check(library.mxfp4_pack_expect_read(reader, ctypes.c_int64(int(expected))))
for file in files:
    read(file)
counts = [ctypes.c_int64() for _ in range(3)]
check(library.mxfp4_pack_cached_bytes(reader, *map(ctypes.byref, counts)))
print(*(count.value for count in counts))
library.mxfp4_pack_close_reader(reader)
