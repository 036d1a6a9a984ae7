#!/usr/bin/env python3
"""Seconds of reading for a start from a remote file system: cold, second, third; original and packed.

usage: far_start.py MXFP4-PACK SLOW DIR [--delay 3000] [--rounds 3] [--keep]

SLOW is mxfp4_slow (see slow_bench.sh), libmxfp4_pack.so lies beside MXFP4-PACK. DIR needs a GB of free space. Each request
takes --delay microseconds. --keep: the page cache keeps a file's pages when the file is opened again. Ways:
  packed, auto or no   the library's reader with 12 threads and that MXFP4_PACK_PAGE_CACHE, and the other tensors from a
                       mapped file, as an engine reads them, at the same time
  original, mapped     all tensors from mapped files, one after the other
  original, cat        the same files by cat
All but cat copy into new memory. A mount's first reading is cold; each reading is a process of its own, and its start is not
measured, except for cat. The order of the ways changes from round to round. Printed: medians (and all).
"""

import argparse
import ctypes
import glob
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time

THREADS = 12
PIECE = 16 << 20
WHEN = ("cold", "second", "third")


class Part(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("file", ctypes.c_char_p), ("offset", ctypes.c_int64), ("bytes", ctypes.c_int64),
                ("target", ctypes.c_void_p), ("hash", ctypes.c_void_p)]


class PackedRead:
    """Reads a whole file by the C library, in the background."""

    def __init__(self, library, file, expected):
        self.library, self.reader, self.number = library, ctypes.c_void_p(), ctypes.c_int64()
        size = os.stat(file).st_size
        self.memory = mmap.mmap(-1, size)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        part = Part(ctypes.sizeof(Part), os.fsencode(file), 0, size, address, None)
        self.check(library.mxfp4_pack_open_reader(-1, THREADS, ctypes.byref(self.reader)))
        self.check(library.mxfp4_pack_expect_read(self.reader, ctypes.c_int64(expected)))
        count, number = ctypes.c_size_t(1), ctypes.byref(self.number)
        self.check(library.mxfp4_pack_begin_read(self.reader, ctypes.byref(part), count, number))

    def check(self, status):
        if status:
            sys.exit(f"error: {self.library.mxfp4_pack_error().decode()}")

    def finish(self):
        self.check(self.library.mxfp4_pack_finish_read(self.reader, self.number, None))


def read_once(path, packed, *mapped):
    """In a process of its own. packed: a file for the library's reader; empty: none."""
    library = ctypes.CDLL(path)
    library.mxfp4_pack_error.restype = ctypes.c_char_p
    begin, held = time.monotonic(), []
    reader = PackedRead(library, packed, sum(os.stat(f).st_size for f in (packed, *mapped))) if packed else None
    for name in mapped:
        with open(name, "rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        held += [bytes(data[at:at + PIECE]) for at in range(0, len(data), PIECE)]
    if reader:
        reader.finish()
    print(f"{time.monotonic() - begin:.3f}", flush=True)
    os._exit(0)  # the memory is not worth the time


def seconds(command, setting):
    begin = time.monotonic()
    environment = os.environ | {"MXFP4_PACK_PAGE_CACHE": setting}
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    return float(out) if out else time.monotonic() - begin


def ways_of(far, library):
    """{name: (command, MXFP4_PACK_PAGE_CACHE)}"""
    raw = sorted(glob.glob(f"{far}/raw/*.safetensors"))
    own = [sys.executable, os.path.abspath(__file__), "--read", library]
    ours = [*own, *glob.glob(f"{far}/packed/packed/packed-*"), *glob.glob(f"{far}/packed/*.safetensors")]
    return {"packed, auto": (ours, "auto"), "packed, no": (ours, "no"), "original, mapped": ([*own, "", *raw], "auto"),
            "original, cat": (["sh", "-c", 'cat "$@" >/dev/null', "sh", *raw], "auto")}


def measure(o, work):
    near, far = f"{work}/near", f"{work}/far"
    os.makedirs(near), os.makedirs(far)
    model = ["gpt-oss-20b", "--layers", "1", "--vocab", "1024"]
    subprocess.run([o.program, "synth", model[0], f"{near}/raw", *model[1:], "-q"], check=True)
    convert = [o.program, "convert", f"{near}/raw", f"{near}/packed", "--engine", "vllm", "--backend", "marlin", "-q"]
    subprocess.run(convert, check=True)
    library = os.path.join(os.path.dirname(os.path.abspath(o.program)), "libmxfp4_pack.so")
    mount = [o.slow, near, far, str(o.delay), "direct", *(["keep"] if o.keep else [])]
    found = {}
    for turn in range(o.rounds):
        names = ["packed, auto", "original, mapped", "packed, no", "original, cat"]
        for name in names[turn % 4:] + names[:turn % 4]:
            subprocess.run(mount, check=True)
            try:
                command, setting = ways_of(far, library)[name]
                found.setdefault(name, []).append([seconds(command, setting) for _ in WHEN])
            finally:
                subprocess.run(["umount", far], check=True)
            print(turn, name, *(f"{s:.2f}" for s in found[name][-1]), file=sys.stderr, flush=True)
    print(f"| | {' | '.join(WHEN)} |\n|---|---|---|---|")
    for name, rounds in found.items():
        cells = [f"{statistics.median(c):.2f} ({', '.join(f'{s:.2f}' for s in c)})" for c in zip(*rounds)]
        print(f"| {name} | {' | '.join(cells)} |")


def main():
    if sys.argv[1:2] == ["--read"]:
        read_once(*sys.argv[2:])
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("slow")
    parser.add_argument("dir")
    parser.add_argument("--delay", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", action="store_true")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=o.dir) as work:
        measure(o, work)


if __name__ == "__main__":
    main()
