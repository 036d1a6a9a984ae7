"""Reading packed tensors: the threads, the ring of pinned buffers (with a stand-in of CUDA), reading ahead, checksums."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from types import SimpleNamespace
from unittest import mock

import torch

from golden import same
from mxfp4_pack import Manifest, Refused, _loading, _stream, _xxh3, packed_set
from mxfp4_pack._safetensors import read_header
from packed_dir import Checkpoint, random_layer

MB = 1 << 20


class FakeEvent:
    """A copy that is done only when somebody waits for it."""
    waited = 0

    def record(self, stream):
        pass

    def query(self):
        return False

    def synchronize(self):
        FakeEvent.waited += 1


def fake_cuda(registered):
    """torch.cuda, as far as the reader uses it, with the CPU's memory as the GPU's."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    runtime = SimpleNamespace(cudaHostRegister=lambda address, size, flags: registered.append(size) or 0,
                              cudaHostUnregister=lambda address: registered.append(-1) or 0)
    return mock.patch.multiple(torch.cuda, Stream=lambda device: stream, current_stream=lambda device: stream,
                               stream=lambda stream: contextlib.nullcontext(),
                               device=lambda device: contextlib.nullcontext(), Event=FakeEvent, cudart=lambda: runtime)


class Files(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MXFP4_PACK_TEST_DIRECTORY"))
        self.addCleanup(temporary.cleanup)
        self.path = os.path.join(temporary.name, "file")
        self.data = torch.randint(0, 256, (3 * MB + 777,), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
        with open(self.path, "wb") as file:
            file.write(self.data.numpy().tobytes())

    def jobs(self, runs):
        return [_stream.Job(self.path, begin, end, torch.zeros(end - begin, dtype=torch.uint8)) for begin, end in runs]

    def check(self, jobs):
        for job in jobs:
            self.assertTrue(torch.equal(job.target, self.data[job.begin:job.end]), (job.begin, job.end))

    RUNS = [(0, 3 * MB + 777), (1, 2), (4095, 4097), (4096, 8192), (MB + 5, 3 * MB + 777), (3 * MB + 776, 3 * MB + 777)]

    def test_into_memory(self):
        reader = _stream.Reader(threads=3)
        with mock.patch.object(_stream, "PIECE", 65536):
            jobs = self.jobs(self.RUNS)
            self.assertEqual(reader.start(jobs, torch.device("cpu")).wait(), [])
        reader.close()
        self.check(jobs)

    def test_through_pinned_buffers(self):
        """From the page cache and past it; more pieces than buffers."""
        for cold in (False, True):
            registered = []
            FakeEvent.waited = 0
            with self.subTest(cold=cold), fake_cuda(registered), mock.patch.object(_stream, "PIECE", 65536), \
                    mock.patch.object(_stream, "PINNED", 4 * 65536), mock.patch.object(_stream, "is_cold", lambda *range: cold):
                reader = _stream.Reader(threads=3)
                jobs = self.jobs(self.RUNS)
                reader.start(jobs, torch.device("cuda", 0)).wait()
                reader.close()
                self.check(jobs)
                self.assertEqual(registered, [65536] * len(registered[::2]) + [-1] * len(registered[::2]))
                self.assertIn(len(registered), (2, 4, 6, 8))  # as many as were needed at once, at most four
                self.assertGreater(FakeEvent.waited, len(self.RUNS))

    def test_pinned_memory_is_shared_by_the_ranks_of_a_host(self):
        for ranks, buffers in (("1", 24), ("2", 12), ("4", 6), ("8", 3), ("64", 2), ("x", 24), ("0", 24)):
            with mock.patch.dict(os.environ, LOCAL_WORLD_SIZE=ranks):
                self.assertEqual(_stream.pinned_buffers(12), buffers, ranks)

    def test_a_file_that_ends_early(self):
        for device, cuda in ((torch.device("cpu"), contextlib.nullcontext()), (torch.device("cuda", 0), fake_cuda([]))):
            with cuda:
                reader = _stream.Reader(threads=2)
                job = _stream.Job(self.path, 3 * MB, 4 * MB, torch.zeros(MB, dtype=torch.uint8))
                with self.assertRaisesRegex(EOFError, f"file ends at byte {3 * MB + 777}, expected are {4 * MB}"):
                    reader.start([job], device).wait()
                reader.close()

    def test_what_is_in_the_page_cache_is_not_cold(self):
        with open(self.path, "rb") as file:
            file.read()
            self.assertFalse(_stream.is_cold(file.fileno(), 0, MB))
            self.assertEqual(_stream.resident_pages(file.fileno(), 0, MB), MB // 4096)

    @unittest.skipUnless(_xxh3.xxhash, "the xxhash module is not there: checksums on the way are not tested")
    def test_checksums_of_slices(self):
        size = 100_003
        target = torch.zeros(5 * size, dtype=torch.uint8)
        jobs = [_stream.Job(self.path, 17, 17 + 5 * size, target, size), _stream.Job(self.path, 17, 17 + size, None, size)]
        expected = [_xxh3.hexdigest(self.data[17 + i * size:17 + (i + 1) * size].numpy().tobytes()) for i in (0, 1, 2, 3, 4, 0)]
        for device, cuda in ((torch.device("cpu"), contextlib.nullcontext()), (torch.device("cuda", 0), fake_cuda([]))):
            with cuda, mock.patch.object(_stream, "PIECE", 65536):
                reader = _stream.Reader(threads=2)
                digests = reader.start(jobs, device).wait()
                reader.close()
            self.assertEqual([d.hex() for d in digests], expected)
            self.assertTrue(torch.equal(target, self.data[17:17 + 5 * size]))


class Layers(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = os.path.join(temporary.name, "out")
        layers = {("model", n): random_layer(n, 6, 96, 160, True) for n in range(5)}
        self.checkpoint = Checkpoint("vllm", "marlin", "gpt_oss", 96, 160, layers)
        self.checkpoint.write(self.directory)
        self.set = Manifest(self.directory, "vllm").pick("auto", 1, 0)
        self.cpu = torch.device("cpu")

    def test_a_line_where_reading_takes_long(self):
        for number in range(3):
            self.set.expect(self.set.layers["model", number], range(6), self.cpu)
        lines = []
        for number, late in enumerate((4, 6, 20)):
            self.set.read_layer(self.set.layers["model", number], range(6), self.cpu)
            with mock.patch.object(packed_set.time, "monotonic", lambda: self.set.loading.progress.begin + late):
                lines += [self.set.progress(), self.set.progress()]
        self.assertEqual(lines, [None, None, "mxfp4-pack: 2 of 5 layers, 0.0 GB are read", None, None, None])

    def check(self, number, experts):
        tensors = self.set.read_layer(self.set.layers["model", number], experts, self.cpu)
        for key, want in self.checkpoint.expected(("model", number)).items():
            same(self, tensors[key], want[list(experts)].contiguous(), (number, key))

    def test_experts_in_any_order(self):
        for piece in (1, 5000, _stream.PIECE):
            for experts in (range(6), range(2, 5), [5], [0, 2, 4], [3, 4, 0, 1], [5, 4, 3, 2, 1, 0]):
                with self.subTest(piece=piece, experts=experts), mock.patch.object(_loading, "PIECE", piece):
                    self.check(1, experts)

    def test_neighbours_share_a_read(self):
        entry = self.set.layers["model", 0]["w2", "bias"]
        size = entry.bytes // 6
        for experts, runs in ((range(6), [(0, 6)]), ([0, 1, 3, 4], [(0, 2), (3, 5)]), ([1, 0], [(1, 2), (0, 1)])):
            tensor = torch.empty((len(experts), *entry.shape[1:]), dtype=torch.bfloat16)
            jobs = _loading.jobs_of("f", 1000, entry, (tuple(experts), tensor), False)
            self.assertEqual([(job.begin, job.end) for job in jobs],
                             [(1000 + a * size, 1000 + b * size) for a, b in runs])
            self.assertTrue(all(job.target.numel() == job.end - job.begin for job in jobs))

    def test_layers_are_read_when_they_are_expected(self):
        others = set(threading.enumerate())
        read = []
        run = _stream.Reader.run

        def recording(reader, job, stream):
            result = run(reader, job, stream)
            read.append(job)
            return result

        jobs = len(self.set.layers["model", 0])
        with mock.patch.object(_stream.Reader, "run", recording):
            for n in range(4):
                self.set.expect(self.set.layers["model", n], range(6), self.cpu)
            deadline = time.monotonic() + 30
            while len(read) < 4 * jobs and time.monotonic() < deadline:
                time.sleep(0.001)
            self.assertEqual(len(read), 4 * jobs)
            for n in range(3):
                self.assertFalse(self.set.finished)
                self.check(n, range(6))
            self.assertEqual(len(read), 4 * jobs)
            self.check(3, range(2))  # other experts than expected: read again
            self.assertEqual(len(read), 5 * jobs)
        self.assertTrue(self.set.finished)
        self.assertIsNone(self.set.loading.reader)
        self.assertLessEqual(set(threading.enumerate()), others)
        self.check(4, range(6))

    def test_layers_that_nobody_wants_any_more(self):
        others = set(threading.enumerate())
        begun, go_on = threading.Event(), threading.Event()

        def slow(file, memory, offset, needed):
            begun.set()
            go_on.wait(30)
            read.append(needed)

        read = []
        with mock.patch.object(_stream.File, "read", slow):
            for n in range(4):
                self.set.expect(self.set.layers["model", n], range(6), self.cpu)
            begun.wait(30)
            threading.Timer(0.05, go_on.set).start()
            self.set.loading.drop()
        self.assertLess(len(read), 4 * len(self.set.layers["model", 0]))  # only what had begun
        self.assertTrue(self.set.finished)
        self.assertIsNone(self.set.loading.reader)
        self.assertLessEqual({t for t in threading.enumerate() if not isinstance(t, threading.Timer)}, others)
        self.check(2, range(6))

    def test_a_process_that_fails_does_not_wait_for_what_it_expected(self):
        program = ("import os, sys, torch\n"
                   "from mxfp4_pack import _stream\n"
                   "reader = _stream.Reader(threads=1)\n"
                   "reader.run = lambda job, stream: __import__('time').sleep(60)\n"
                   "reader.start([_stream.Job(os.devnull, 0, 1, torch.zeros(1))],"
                   " torch.device('cpu'))\n"
                   "sys.exit(3)\n")
        path = os.path.dirname(os.path.dirname(_stream.__file__))
        ended = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, timeout=50)
        self.assertEqual(ended.returncode, 3)

    def test_a_damaged_file_is_refused(self):
        path = os.path.join(self.directory, "packed/packed-00001.safetensors")
        with open(path, "rb") as file:
            good = file.read()
        length = int.from_bytes(good[:8], "little")
        header = json.loads(good[8:8 + length])
        first, second = list(header)[1:3] if "__metadata__" in header else list(header)[:2]

        def with_header(change):
            changed = json.loads(json.dumps(header))
            change(changed)
            text = json.dumps(changed).encode()
            return len(text).to_bytes(8, "little") + text + good[8 + length:]

        for data, message in ((good[:-1], "its header says"), (good + b"x", "its header says"), (b"", "longer than the file"),
                              (good[:5], "longer than the file"), (b"\xff" * 8 + good[8:], "longer than the file"),
                              (good[:8] + b"[" * length + good[8 + length:], "its header is damaged"),
                              (with_header(lambda h: h[first].update(data_offsets=h[second]["data_offsets"])),
                               "not those of its shape, or lie over"),
                              (with_header(lambda h: h[first].update(shape=[-1])), "its header is damaged"),
                              (with_header(lambda h: h[first].update(shape=[1])), "not those of its shape"),
                              (with_header(lambda h: h.pop(first)), "not those of its shape, or lie over")):
            with open(path, "wb") as file:
                file.write(data)
            with self.subTest(message=message), self.assertRaisesRegex(Refused, message):
                read_header(path)
        os.remove(path)
        with self.assertRaises(Refused):
            self.set.read_layer(self.set.layers["model", 0], range(6), self.cpu)

    @unittest.skipUnless(_xxh3.xxhash, "the xxhash module is not there: checksums on the way are not tested")
    def test_checksums_on_the_way(self):
        path = os.path.join(self.directory, "packed/packed-00001.safetensors")
        entry = self.set.layers["model", 1]["w2", "codes"]
        begin = read_header(path)[0][entry.name].begin
        with mock.patch.dict(os.environ, MXFP4_PACK_VERIFY="1"):
            self.check(1, range(6))
            self.check(1, [4, 1])
            with open(path, "r+b") as file:
                file.seek(begin + entry.bytes - 1)
                last = file.read(1)[0]
                file.seek(begin + entry.bytes - 1)
                file.write(bytes([last ^ 1]))
            for experts in (range(6), [0]):  # also where the changed expert is another rank's
                self.set = Manifest(self.directory, "vllm").pick("auto", 1, 0)
                with self.assertRaisesRegex(Refused, f"{entry.name}: its bytes do not have the manifest's checksum"):
                    self.set.read_layer(self.set.layers["model", 1], experts, self.cpu)
            with mock.patch.object(_xxh3, "xxhash", None), self.assertRaisesRegex(Refused, "pip install xxhash"):
                _loading.Loading(self.directory)
        self.set = Manifest(self.directory, "vllm").pick("auto", 1, 0)
        self.set.read_layer(self.set.layers["model", 1], range(6), self.cpu)


if __name__ == "__main__":
    unittest.main()
