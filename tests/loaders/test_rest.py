"""The weights that an engine loads itself: read by this package's reader for a new model, by the engine otherwise."""

import os
import tempfile
import unittest
from types import SimpleNamespace
from unittest import mock

import torch
from safetensors.torch import save_file

import sglang_case  # noqa: F401  the stand-ins
import vllm_case  # noqa: F401
from mxfp4_pack import Refused, _rest
from mxfp4_pack._reader import Reader
from mxfp4_pack.sglang import rest as sglang_rest
from mxfp4_pack.vllm import rest as vllm_rest

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
ONE_RANK = SimpleNamespace(parallel_config=SimpleNamespace(pipeline_parallel_size=1))
TWO_RANKS = SimpleNamespace(parallel_config=SimpleNamespace(pipeline_parallel_size=2))


def random(*shape, dtype=torch.bfloat16):
    return torch.randint(0, 100, shape, dtype=torch.uint8).to(dtype)


class Files(unittest.TestCase):
    def setUp(self):
        self.directory = self.enterContext(tempfile.TemporaryDirectory())
        self.enterContext(mock.patch.dict(_rest.waiting, clear=True))
        self.files = [os.path.join(self.directory, name) for name in ("rest-10.safetensors", "rest-9.safetensors")]
        self.tensors = [{"b": random(70, 33), "a": random(5, dtype=torch.float8_e4m3fn), "none": torch.empty(0, 4)},
                        {"scale": random(3, 4, dtype=torch.float8_e8m0fnu), "one": torch.tensor(2.5), "big": random(9, 100_000)}]
        for path, tensors in zip(self.files, self.tensors):
            save_file(tensors, path)
        self.all = self.tensors[0] | self.tensors[1]
        self.opened = []

    def reader(self, reaches=True):
        """Replaces the reader by one that has the host's memory as the GPU's."""
        def open_one(device, threads):
            self.opened.append(Reader(CPU, threads))
            self.opened[-1].reaches = reaches
            return self.opened[-1]
        return mock.patch.object(_rest, "Reader", open_one)

    def check_read(self, found, first=0):
        self.assertEqual(sorted(name for name, _ in found), sorted(self.all))
        self.assertEqual({name for name, _ in found[:3]}, set(self.tensors[first]), "the order of files")
        for name, tensor in found:
            want = self.all[name]
            self.assertEqual((tensor.dtype, tensor.shape), (want.dtype, want.shape), name)
            self.assertTrue(torch.equal(tensor.view(torch.uint8) if tensor.dim() else tensor,
                                        want.view(torch.uint8) if want.dim() else want), name)


class Sglang(Files):
    def given(self, **named):
        from sglang.srt.model_loader import loader
        with self.reader():
            return list(loader.buffered_multi_thread_safetensors_weights_iterator(self.files, max_workers=8, **named))

    def test_a_new_model(self):
        sglang_rest.expect(self.directory, GPU)
        self.check_read(self.given(disable_mmap=False, prefetch=False, prefetch_num_threads=4, drop_cache_after_load=False))
        self.assertFalse(self.opened[0].close.alive, "the reader is closed")

    def test_left_to_sglang(self):
        sglang_rest.expect(self.directory, GPU)
        self.given()
        self.assertEqual(self.given(), [(self.files, 8, False, False, False)])  # a reload
        for number, choice in enumerate(sglang_rest.CHOICES):
            sglang_rest.expect(self.directory, GPU)
            self.assertEqual(self.given(**{choice: True}), [(self.files, 8, *(i == number for i in range(3)))])
        sglang_rest.expect(self.directory, CPU)
        self.assertEqual(len(self.given()), 1)


class Vllm(Files):
    def expect(self, vllm=ONE_RANK, device=GPU):
        vllm_rest.expect(self.directory, device, vllm)

    def given(self, *arguments, reaches=True, **named):
        with self.reader(reaches):
            return list(vllm_rest.default_loader.safetensors_weights_iterator(self.files, *arguments, **named))

    def check_read(self, found):
        super().check_read(found, first=1)  # vLLM reads file 9 before file 10

    def check_vllms(self, found, strategy=None, experts=None):
        self.assertEqual(found, [(self.files, False, strategy, experts)])

    def test_a_new_model(self):
        self.expect()
        self.check_read(self.given(False))
        self.assertFalse(self.opened[0].close.alive, "the reader is closed")
        self.expect()
        self.check_read(self.given(False, "lazy", {1, 2}))
        self.expect()
        self.check_read(self.given(False, safetensors_load_strategy=None, local_expert_ids={1}))

    def test_in_groups(self):
        """One request for each tensor, and few of them at once."""
        with mock.patch.multiple(_rest, GROUP=1, AHEAD=1):
            self.expect()
            self.check_read(self.given(False))

    def test_left_to_vllm(self):
        self.expect()  # so that vLLM's function is replaced
        self.given(False)
        self.check_vllms(self.given(False))  # a reload
        self.expect()
        self.check_vllms(self.given(False, "eager"), "eager")
        self.expect()
        self.check_vllms(self.given(False, safetensors_load_strategy="prefetch", local_expert_ids={3}), "prefetch", {3})
        self.expect(TWO_RANKS)
        self.check_vllms(self.given(False))
        self.expect(device=CPU)
        self.check_vllms(self.given(False))
        _rest.waiting[self.directory + "-other"] = GPU
        self.check_vllms(self.given(False))
        self.expect()
        self.check_vllms(self.given(False, reaches=False))

    def test_little_memory_of_the_gpu(self):
        """Tensors for which the GPU has no memory come in the host's."""
        empty, failed = torch.empty, []

        def no_memory(*arguments, device, **given):
            if device.type == "cpu" and len(failed) < 1 and arguments[0] == self.all["big"].shape:
                failed.append(1)
                raise torch.cuda.OutOfMemoryError
            return empty(*arguments, device=device, **given)
        self.expect()
        with mock.patch.object(_rest.torch, "empty", no_memory):
            self.check_read(self.given(False))
        self.assertEqual(failed, [1])
        self.assertEqual(len(self.opened), 2)

    def test_stopped(self):
        """vLLM stops in the middle: no request may write to memory that is free again."""
        self.expect()
        with self.reader():
            weights = vllm_rest.default_loader.safetensors_weights_iterator(self.files, False)
            next(weights)
            weights.close()
        self.assertFalse(self.opened[0].close.alive)

    def test_file_that_shrinks(self):
        self.expect()
        stored = _rest.stored_in(self.files)
        os.truncate(self.files[1], 1000)
        with mock.patch.object(_rest, "stored_in", lambda files: stored), self.assertRaisesRegex(Refused, "rest-9.*did it change"):
            self.given(False)


if __name__ == "__main__":
    unittest.main()
