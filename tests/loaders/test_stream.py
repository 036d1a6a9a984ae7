"""Reading packed tensors: by the C library, ahead of the engine, through the host's memory, with checksums."""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import torch

from golden import same
from mxfp4_pack import Manifest, Refused, _loading, _reader, packed_set
from mxfp4_pack._safetensors import read_header
from packed_dir import Checkpoint, random_layer

MB = 1 << 20
CPU = torch.device("cpu")


def short_of(device):
    """A reader of a library that does not reach the GPU, whose memory is the CPU's here."""
    reader = _reader.Reader(device)
    reader.reaches = False
    return reader


class Files(unittest.TestCase):
    def setUp(self):
        self.path = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "file")
        with open(self.path, "wb") as file:
            file.truncate(9 * MB + 777)
        self.reader = _reader.Reader(CPU, threads=3)

    def test_a_file_that_ends_early(self):
        for end in (10 * MB, 1 << 62, (1 << 63) - 1):
            self.refuses(f"file: ends at byte {9 * MB + 777}, {end - 9 * MB - 777} more expected", self.path, end - 9 * MB)
        self.refuses("file: offset 9437184 and 9223372036854775807 bytes end beyond any file", self.path, (1 << 63) - 1)
        self.refuses("none", self.path + "none", 1)

    def refuses(self, message, path, bytes_):
        run = _reader.Run(path, 9 * MB, bytes_, None, ctypes.addressof(ctypes.create_string_buffer(16)))
        with self.assertRaisesRegex(Refused, message):
            self.reader.begin([run], None)

    def test_a_reader_that_nobody_has_any_more_is_closed(self):
        target = torch.empty(9 * MB, dtype=torch.uint8)
        self.reader.begin([_reader.Run(self.path, 0, 9 * MB, target.data_ptr())] * 100, target)
        close = self.reader.close
        del self.reader
        self.assertFalse(close.alive)


class Layers(unittest.TestCase):
    def setUp(self):
        self.directory = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "out")
        layers = {("model", n): random_layer(n, 6, 96, 160, True) for n in range(5)}
        self.checkpoint = Checkpoint("vllm", "marlin", "gpt_oss", 96, 160, layers)
        self.checkpoint.write(self.directory)
        self.set = Manifest(self.directory, "vllm").pick("auto", 1, 0)

    def test_a_line_where_reading_takes_long(self):
        for number in range(3):
            self.set.expect(self.set.layers["model", number], range(6), CPU)
        lines = []
        for number, late in enumerate((4, 6, 20)):
            self.set.read_layer(self.set.layers["model", number], range(6), CPU)
            with mock.patch.object(packed_set.time, "monotonic", lambda: self.set.loading.progress.begin + late):
                lines += [self.set.progress(), self.set.progress()]
        self.assertEqual(lines, [None, None, "mxfp4-pack: 0.0 of 0.0 GB are read; 2 of 3 layers are in place", None, None, None])

    def test_the_line_counts_what_is_read_and_not_only_what_the_engine_has_got(self):
        for number in range(3):
            self.set.expect(self.set.layers["model", number], range(4), CPU)
        loading, bytes_ = self.set.loading, sum(e.bytes // 6 * 4 for e in self.set.layers["model", 0].values())
        self.assertEqual((loading.progress.expected, loading.progress.expected_bytes), (3, 3 * bytes_))
        for started in loading.started.values():
            loading.reader.finish(started.number)
        self.assertEqual((loading.bytes_so_far(), loading.progress.bytes), (3 * bytes_, 0))

    def check(self, number, experts):
        tensors = self.set.read_layer(self.set.layers["model", number], experts, CPU)
        for key, want in self.checkpoint.expected(("model", number)).items():
            same(self, tensors[key], want[list(experts)].contiguous(), (number, key))

    def test_experts_in_any_order(self):
        for verify in ("0", "1"):
            for experts in (range(6), range(2, 5), [5], [0, 2, 4], [3, 4, 0, 1], [5, 4, 3, 2, 1, 0], [1, 1, 0, 5, 0]):
                with self.subTest(verify=verify, experts=experts), mock.patch.dict(os.environ, MXFP4_PACK_VERIFY=verify):
                    self.set = Manifest(self.directory, "vllm").pick("auto", 1, 0)
                    self.check(1, experts)

    def test_the_page_cache_in_the_report(self):
        self.check(0, range(6))
        progress = self.set.loading.progress
        self.assertEqual(progress.read, sum(entry.bytes for entry in self.set.layers["model", 0].values()))
        self.assertEqual((progress.cached_before, progress.cached_now), (progress.read, progress.read))  # just written
        self.assertRegex(self.set.report(), r"GB/s; the page cache had (0\.[0-9]+) of \1 GB and has \1$")
        progress.cached_before = progress.cached_now = -1
        self.assertEqual(progress.page_cache, "page cache unknown")

    def test_what_a_start_reads(self):
        """The packed files of all ranks once, and the other tensors that the engine reads."""
        before = self.set.start_bytes()
        self.assertEqual(before, sum(os.stat(os.path.join(self.directory, name)).st_size
                                     for name in {e.file for layer in self.set.layers.values() for e in layer.values()}))
        with open(os.path.join(self.directory, "rest-00001.safetensors"), "wb") as file:
            file.truncate(12345)
        with open(os.path.join(self.directory, "tokenizer.json"), "w") as file:
            file.write("{}")
        self.assertEqual(self.set.start_bytes(), before + 12345)

    def test_another_setting_of_the_page_cache(self):
        with (mock.patch.dict(os.environ, MXFP4_PACK_PAGE_CACHE="on"),
              self.assertRaisesRegex(Refused, "^MXFP4_PACK_PAGE_CACHE: 'on' is not auto, yes or no$")):
            self.check(0, range(6))

    def test_without_the_library(self):
        with (mock.patch.dict(os.environ, MXFP4_PACK_LIBRARY="/none.so"),
              self.assertRaisesRegex(Refused, "libmxfp4_pack.so is missing.*Install the wheel")):
            self.check(0, range(6))

    def test_through_the_memory_of_the_host(self):
        with mock.patch.object(_loading, "Reader", short_of), mock.patch.dict(os.environ, MXFP4_PACK_VERIFY="1"):
            for n in range(3):
                self.set.expect(self.set.layers["model", n], range(6), CPU)
            self.assertEqual([started.number for started in self.set.loading.started.values()], [None] * 3)
            for n, experts in ((2, range(6)), (0, [4, 1]), (1, range(6))):
                self.check(n, experts)
        self.assertTrue(self.set.finished)

    def test_neighbours_share_a_read(self):
        entry = self.set.layers["model", 0]["w2", "bias"]
        size = entry.bytes // 6
        for experts, runs in ((range(6), [(0, 6)]), ([0, 1, 3, 4], [(0, 2), (3, 5)]), ([1, 0], [(1, 2), (0, 1)])):
            made = _loading.runs_of("f", 1000, entry, (tuple(experts), 5000, None))
            self.assertEqual([(run.offset, run.bytes) for run in made], [(1000 + a * size, (b - a) * size) for a, b in runs])
            places = [5000 + size * sum(b - a for a, b in runs[:i]) for i in range(len(runs))]
            self.assertEqual([run.target for run in made], places)

    def test_layers_are_read_when_they_are_expected(self):
        begun = []
        begin = _reader.Reader.begin

        def recording(reader, runs, tensors):
            begun.append(len(runs))
            return begin(reader, runs, tensors)

        jobs = len(self.set.layers["model", 0])
        with mock.patch.object(_reader.Reader, "begin", recording):
            for n in range(4):
                self.set.expect(self.set.layers["model", n], range(6), CPU)
            self.assertEqual(begun, [jobs] * 4)
            for n in range(3):
                self.assertFalse(self.set.finished)
                self.check(n, range(6))
            self.assertEqual(begun, [jobs] * 4)
            self.check(3, range(2))  # other experts than expected: read again
            self.assertEqual(begun, [jobs] * 5)
        self.assertTrue(self.set.finished)
        self.assertIsNone(self.set.loading.reader)
        self.check(4, range(6))

    def test_layers_that_nobody_wants_any_more(self):
        for n in range(4):
            self.set.expect(self.set.layers["model", n], range(6), CPU)
        close = self.set.loading.reader.close
        self.set.loading.drop()
        self.assertFalse(close.alive)
        self.assertTrue(self.set.finished)
        self.assertIsNone(self.set.loading.reader)
        self.check(2, range(6))

    def test_a_process_that_fails_does_not_wait_for_what_it_expected(self):
        program = ("import sys, tempfile, torch\n"
                   "file = tempfile.NamedTemporaryFile()\n"
                   "file.truncate(1 << 28)\n"
                   "from mxfp4_pack import _reader\n"
                   "reader = _reader.Reader(torch.device('cpu'), threads=1)\n"
                   "target = torch.empty(1 << 28, dtype=torch.uint8)\n"
                   "reader.begin([_reader.Run(file.name, 0, 1 << 28, target.data_ptr())] * 8000, target)\n"
                   "sys.exit(3)\n")
        path = os.path.dirname(os.path.dirname(_reader.__file__))
        ended = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, timeout=100)
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
                              (good[:8] + b"[" * length + good[8 + length:], "nested too deeply|not JSON"),
                              (with_header(lambda h: h[first].update(data_offsets=h[second]["data_offsets"])),
                               "not those of its shape, or lie over"),
                              (with_header(lambda h: h[first].update(shape=[-1])), "a whole number from 0 to"),
                              (with_header(lambda h: h[first].update(shape=[1])), "not those of its shape"),
                              (with_header(lambda h: h.pop(first)), "not those of its shape, or lie over")):
            with open(path, "wb") as file:
                file.write(data)
            with self.subTest(message=message), self.assertRaisesRegex(Refused, message):
                read_header(path)
        os.remove(path)
        with self.assertRaises(Refused):
            self.set.read_layer(self.set.layers["model", 0], range(6), CPU)

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
                    self.set.read_layer(self.set.layers["model", 1], experts, CPU)
        self.set = Manifest(self.directory, "vllm").pick("auto", 1, 0)
        self.set.read_layer(self.set.layers["model", 1], range(6), CPU)


if __name__ == "__main__":
    unittest.main()
