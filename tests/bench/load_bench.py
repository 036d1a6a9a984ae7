"""How fast packed experts come into a GPU: by the loaders' reader, and by a plain program on the same files.

    mxfp4-pack synth gpt-oss-20b R && mxfp4-pack convert R P --engine vllm --backend marlin
    MXFP4_PACK_LIBRARY=build/libmxfp4_pack.so PYTHONPATH=src/loaders python3 tests/bench/load_bench.py P
        [--device cuda] [--threads 4,8,16] [--cold] [--busy] [--repeat 3]

The plain program reads each file in pieces of 16 MiB with pread into pinned buffers, two for each thread, and copies
them to the GPU on one stream; it ignores tensors. `mapped` is the way of torch: each tensor in a mapped file, copied
with .to(device). Without --cold all files are read once before, so that they are in the page cache; with --cold they
are dropped from it before each run. With --busy, Python is as busy as an engine that builds a model while the packed
layers are read. One line for each way and number of threads: GB/s of the best run, and of all.
"""

import argparse
import mmap
import os
import queue
import threading
import time

import torch

from mxfp4_pack import _loading, _reader
from mxfp4_pack.manifest import Manifest, read_manifest, read_tensors

PIECE = 16 << 20


def drop(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(path):
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(PIECE)
        while file.readinto(buffer):
            pass


class PlainThread(threading.Thread):
    """Takes pieces until there are none, with two buffers of its own in turn."""

    def __init__(self, pieces, targets, stream):
        super().__init__()
        self.pieces, self.targets, self.stream = pieces, targets, stream
        pin = stream is not None
        self.buffers = [torch.empty(PIECE, dtype=torch.uint8, pin_memory=pin) for _ in range(2)]
        self.copied = [None, None]

    def run(self):
        turn = 0
        while True:
            try:
                path, begin, end = self.pieces.get_nowait()
            except queue.Empty:
                return
            self.read(path, begin, end, turn)
            turn = 1 - turn

    def read(self, path, begin, end, turn):
        if self.copied[turn] is not None:
            self.copied[turn].synchronize()
        buffer = self.buffers[turn]
        memory = memoryview(buffer.numpy())[:end - begin]
        descriptor = os.open(path, os.O_RDONLY)
        try:
            done = 0
            while done < end - begin:
                done += os.preadv(descriptor, [memory[done:]], begin + done)
        finally:
            os.close(descriptor)
        target = self.targets[path][begin:end]
        if self.stream is None:
            target.copy_(buffer[:end - begin])
            return
        with torch.cuda.stream(self.stream):
            target.copy_(buffer[:end - begin], non_blocking=True)
            self.copied[turn] = torch.cuda.Event()
            self.copied[turn].record(self.stream)


def plain(paths, device, threads):
    start = time.perf_counter()
    targets = {path: torch.empty(os.path.getsize(path), dtype=torch.uint8, device=device) for path in paths}
    stream = torch.cuda.Stream(device) if device.type == "cuda" else None
    pieces = queue.SimpleQueue()
    for path in paths:
        for begin in range(0, os.path.getsize(path), PIECE):
            pieces.put((path, begin, min(begin + PIECE, os.path.getsize(path))))
    workers = [PlainThread(pieces, targets, stream) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    finish(device)
    return time.perf_counter() - start, sum(t.numel() for t in targets.values())


def build_modules():
    """Seconds of work in Python alone."""
    begin = time.perf_counter()
    with torch.device("meta"):
        for _ in range(1200):
            torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64))
    return time.perf_counter() - begin


def prepared(directory, engine, rank, device, threads):
    """(the packed set of a rank with a reader of `threads` threads, its layers)"""
    manifest = Manifest(directory, engine)
    set_ = manifest.pick("auto", manifest.sets[0]["moe_tp_size"], rank)
    set_.loading.reader = _reader.Reader(device, threads)
    return set_, list(set_.layers.values())


def packed(set_, layers, device, busy=False):
    experts = range(next(iter(layers[0].values())).experts)
    begin = time.perf_counter()
    for entries in layers:
        set_.expect(entries, experts, device)
    if busy:
        print(f"  modules built in {build_modules():.3f} s beside it", flush=True)
    held = [set_.read_layer(entries, experts, device) for entries in layers]
    finish(device)
    seconds = set_.loading.progress.seconds if busy else time.perf_counter() - begin
    return seconds, sum(entry.bytes for entries in layers for entry in entries.values()), held


def mapped(paths, device):
    begin = time.perf_counter()
    held = []
    for path in paths:
        with open(path, "rb") as file:
            data = torch.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), dtype=torch.uint8)
        for name, t in _loading.read_header(path)[0].items():
            held.append(data[t.begin:t.end].to(device, copy=True))
    finish(device)
    return time.perf_counter() - begin, sum(t.numel() for t in held)


def finish(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(name, run, paths, options):
    speeds = []
    for _ in range(options.repeat):
        for path in paths:
            drop(path) if options.cold else warm(path)
        seconds, size = run()[:2]
        speeds.append(size / 1e9 / seconds)
        if options.device.type == "cuda":
            torch.cuda.empty_cache()
    runs = ", ".join(f"{speed:.2f}" for speed in speeds)
    print(f"{name:24} {max(speeds):7.2f} GB/s   ({runs}; {size / 1e9:.2f} GB)", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda", 0))
    parser.add_argument("--threads", default="4,8,16")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    fields = read_manifest(options.directory)["sets"][0]
    read_tensors(options.directory, fields)
    engine, rank = fields["engine"], 0
    files = dict.fromkeys(t["file"] for t in fields["tensors"] if t["rank"] == rank)
    paths = [os.path.join(options.directory, name) for name in files]
    torch.zeros(1, device=options.device)  # CUDA's start is not measured
    if options.busy:
        build_modules()
        print(f"modules built in {build_modules():.3f} s alone")
    for threads in map(int, options.threads.split(",")):
        measure(f"packed, {threads} threads",
                lambda: packed(*prepared(options.directory, engine, rank, options.device, threads), options.device,
                               options.busy), paths, options)
        measure(f"plain, {threads} threads", lambda: plain(paths, options.device, threads), paths, options)
    measure("mapped", lambda: mapped(paths, options.device), paths, options)


if __name__ == "__main__":
    main()
