"""Reads parts of files into tensors with several threads.

Into a GPU: each thread reads into one of a ring of pinned buffers and copies it from there on a CUDA stream of its own,
straight to where it stays. Into the CPU's memory: straight there. What is not in the page cache is read past it.
"""

import ctypes
import mmap
import os
import queue
import sys
import threading
import time
from concurrent.futures import Future
from typing import NamedTuple

import torch

from ._xxh3 import xxhash

THREADS = 12
PAGE = 4096
PIECE = 20 << 20  # bytes of one read and of one pinned buffer
PINNED = 512 << 20  # bytes, of all processes of a host that LOCAL_WORLD_SIZE counts
TURN = 1e-4  # s after which Python's threads take turns meanwhile: a reader waits as long for an engine's busy thread
CACHESTAT = 451  # the system call's number, on all machines
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)


class Job(NamedTuple):
    """One run of bytes of a file, read in order by one thread."""
    path: str
    begin: int
    end: int
    target: torch.Tensor | None  # as many bytes, U8; None: they are read for their checksums alone
    slice_bytes: int = 0  # length of the slices whose checksums are wanted; 0: none


class File:
    def __init__(self, path, direct):
        self.path = path
        self.cached = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.direct = None
        if direct:
            try:
                self.direct = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
            except OSError:
                pass  # this file system has no direct reads

    def close(self):
        for descriptor in (self.cached, self.direct):
            if descriptor is not None:
                os.close(descriptor)

    def read(self, memory, offset, needed):
        """At least `needed` bytes from `offset` on into `memory`, which may be longer. For a direct read offset, memory
        and its length are multiples of PAGE."""
        done = 0
        if self.direct is not None and len(memory) % PAGE == 0 and is_cold(self.cached, offset, len(memory)):
            done = self.read_direct(memory, offset)
        while done < needed:
            count = os.preadv(self.cached, [memory[done:]], offset + done)
            if count == 0:
                raise EOFError(f"{self.path} ends at byte {offset + done}, expected are {offset + needed}")
            done += count

    def read_direct(self, memory, offset):
        try:
            return os.preadv(self.direct, [memory], offset)
        except OSError:  # the file system wants another alignment
            return 0


def is_cold(descriptor, offset, length):
    """Whether less than half of a range is in the page cache. False where the system does not say."""
    wanted = (ctypes.c_uint64 * 2)(offset, length)
    found = (ctypes.c_uint64 * 5)()
    if libc.syscall(CACHESTAT, descriptor, wanted, found, 0) == 0:
        return found[0] * mmap.PAGESIZE * 2 < length
    return resident_pages(descriptor, offset, length) * mmap.PAGESIZE * 2 < length


def resident_pages(descriptor, offset, length):
    """By mincore, for kernels without cachestat; all pages where that fails too."""
    pages = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
    address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, offset)
    if address == ctypes.c_void_p(-1).value:
        return len(pages)
    failed = libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(length), pages)
    libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(length))
    return len(pages) if failed else sum(page & 1 for page in pages)


def memory_of(address, length):
    return memoryview((ctypes.c_char * length).from_address(address)).cast("B")


def pinned_buffers(threads):
    """Two for each thread, but no more than this process's share."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    share = PINNED // (int(ranks) if ranks.isdigit() and int(ranks) else 1)
    return max(2, min(2 * threads, share // PIECE))


class Ring:
    """Pinned buffers, made when they are first needed: while one is pinned, nothing else goes on in CUDA. One that was
    given back is free again when its copy to the GPU, an event, is done."""

    def __init__(self, count, device):
        self.device = device
        self.free, self.unmade = queue.SimpleQueue(), queue.SimpleQueue()
        self.pinned = []
        for _ in range(count):
            self.unmade.put(None)

    def take(self):
        try:
            buffer, copied = self.free.get_nowait()
        except queue.Empty:
            buffer, copied = self.made_or_free()
        if copied is not None and not copied.query():
            copied.synchronize()
        return buffer

    def made_or_free(self):
        try:
            self.unmade.get_nowait()
        except queue.Empty:
            return self.free.get()
        try:
            return self.pin(huge_pages(PIECE)), None
        except BaseException:
            self.unmade.put(None)  # others must not wait for it
            raise

    def pin(self, buffer):
        buffer.zero_()  # its pages are made now, and not while CUDA waits
        with torch.cuda.device(self.device):  # a thread of its own would open a context on the first GPU
            if int(torch.cuda.cudart().cudaHostRegister(buffer.data_ptr(), len(buffer), 0)) == 0:
                self.pinned.append(buffer)
        return buffer

    def close(self):
        """Only when no thread reads any more."""
        while not self.free.empty():
            self.take()
        for buffer in self.pinned:
            torch.cuda.cudart().cudaHostUnregister(buffer.data_ptr())


def huge_pages(length):
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.madvise(mmap.MADV_HUGEPAGE)  # fewer faults while it is pinned
    except (AttributeError, OSError):
        pass  # a system without large pages
    return torch.frombuffer(memory, dtype=torch.uint8)


class Checksums:
    """XXH3-128 of each slice of a run of bytes that comes in pieces."""

    def __init__(self, slice_bytes):
        self.slice_bytes, self.left = slice_bytes, slice_bytes
        self.state = xxhash.xxh3_128()
        self.digests = []

    def update(self, memory):
        while len(memory):
            part = memory[:self.left]
            self.state.update(part)
            self.left -= len(part)
            memory = memory[len(part):]
            if self.left == 0:
                self.digests.append(self.state.digest())
                self.state.reset()
                self.left = self.slice_bytes


class Workers:
    """Threads that do what is submitted, in its order. A process that ends does not wait for them."""

    def __init__(self, count):
        self.tasks = queue.SimpleQueue()
        self.threads = [threading.Thread(target=self.work, name=f"mxfp4-pack-{i}", daemon=True) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def work(self):
        while (task := self.tasks.get()) is not None:
            future, function, arguments = task
            try:
                future.set_result(function(*arguments))
            except BaseException as error:  # whoever asks for the result gets it
                future.set_exception(error)

    def submit(self, function, *arguments):
        future = Future()
        self.tasks.put((future, function, arguments))
        return future

    def close(self):
        """Returns when all is done."""
        for _ in self.threads:
            self.tasks.put(None)
        for thread in self.threads:
            thread.join()


class Pending:
    """Jobs on their way into tensors on one device."""

    def __init__(self, futures, device, stream):
        self.futures, self.device, self.stream = futures, device, stream

    def wait(self):
        """Returns when all is read (work that is put on the current stream then sees it), or raises what failed first.
        The result: the checksums of all jobs, in their order."""
        digests = [digest for future in self.futures for digest in future.result()]
        if self.stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)
        return digests


class Reader:
    def __init__(self, threads=THREADS, direct=True):
        self.threads, self.direct = threads, direct
        self.workers = Workers(threads)
        self.files, self.streams = {}, {}  # by path; by device
        self.ring = None
        self.turn = sys.getswitchinterval()
        sys.setswitchinterval(min(TURN, self.turn))
        self.last = 0.0  # when the last of the jobs so far ended
        self.dropped = False  # nobody wants the jobs any more

    def start(self, jobs, device):
        """The jobs' targets lie on `device`. Returns at once; jobs are done in the order in which they were started."""
        stream = self.stream_of(device) if device.type == "cuda" else None
        for job in jobs:
            if job.path not in self.files:
                self.files[job.path] = File(job.path, self.direct)
        return Pending([self.workers.submit(self.run, job, stream) for job in jobs], device, stream)

    def stream_of(self, device):
        """The stream for copies to a GPU, after what was done so far with memory that the targets may take over."""
        if device not in self.streams:
            self.streams[device] = torch.cuda.Stream(device)
        if self.ring is None:
            self.ring = Ring(pinned_buffers(self.threads), device)
        self.streams[device].wait_stream(torch.cuda.current_stream(device))
        return self.streams[device]

    def run(self, job, stream):
        sums = Checksums(job.slice_bytes) if job.slice_bytes else None
        aligned = job.begin // PAGE * PAGE
        for start in range(aligned, job.end, PIECE):
            if self.dropped:
                break
            begin, end = max(job.begin, start), min(job.end, start + PIECE)
            if stream is None:
                self.to_memory(job, begin, end, sums)
            else:
                self.to_gpu(job, (start, begin, end), sums, stream)
        self.last = time.monotonic()
        return sums.digests if sums else []

    def to_memory(self, job, begin, end, sums):
        if job.target is None:
            memory = memoryview(bytearray(end - begin))
        else:
            memory = memory_of(job.target.data_ptr() + begin - job.begin, end - begin)
        self.files[job.path].read(memory, begin, end - begin)
        if sums:
            sums.update(memory)

    def to_gpu(self, job, span, sums, stream):
        """`span`: where the read starts, a multiple of PAGE, and begin and end of what is wanted of it."""
        start, begin, end = span
        buffer = self.ring.take()
        copied = None
        try:
            memory = memory_of(buffer.data_ptr(), -(-(end - start) // PAGE) * PAGE)
            self.files[job.path].read(memory, start, end - start)
            if sums:
                sums.update(memory[begin - start:end - start])
            if job.target is not None:
                # inference mode: the targets may have been made in it, and then change only in it
                with torch.inference_mode(), torch.cuda.stream(stream):
                    job.target[begin - job.begin:end - job.begin].copy_(buffer[begin - start:end - start],
                                                                        non_blocking=True)
                    copied = torch.cuda.Event()
                    copied.record(stream)
        finally:
            self.ring.free.put((buffer, copied))

    def close(self):
        """Waits for the jobs, then gives back threads, files and pinned memory."""
        self.workers.close()
        for file in self.files.values():
            file.close()
        if self.ring is not None:
            self.ring.close()
        sys.setswitchinterval(self.turn)
