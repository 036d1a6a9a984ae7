"""The weights that vLLM loads itself: read by this package's reader for a new model, by vLLM otherwise."""

import os
import tempfile
import unittest
from types import SimpleNamespace
from unittest import mock

import torch
from safetensors.torch import save_file

import vllm_stand_in
from mxfp4_pack import Refused
from mxfp4_pack._reader import Reader

vllm_stand_in.install()
from mxfp4_pack.vllm import rest  # noqa: E402  after the stand-ins

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
ONE_RANK = SimpleNamespace(parallel_config=SimpleNamespace(pipeline_parallel_size=1))
TWO_RANKS = SimpleNamespace(parallel_config=SimpleNamespace(pipeline_parallel_size=2))


def random(*shape, dtype=torch.bfloat16):
    return torch.randint(0, 100, shape, dtype=torch.uint8).to(dtype)


class Rest(unittest.TestCase):
    def setUp(self):
        self.directory = self.enterContext(tempfile.TemporaryDirectory())
        self.enterContext(mock.patch.dict(rest.waiting, clear=True))
        self.files = [os.path.join(self.directory, name) for name in ("rest-10.safetensors", "rest-9.safetensors")]
        self.tensors = [{"b": random(70, 33), "a": random(5, dtype=torch.float8_e4m3fn), "none": torch.empty(0, 4)},
                        {"scale": random(3, 4, dtype=torch.float8_e8m0fnu), "one": torch.tensor(2.5), "big": random(9, 100_000)}]
        for path, tensors in zip(self.files, self.tensors):
            save_file(tensors, path)
        self.all = self.tensors[0] | self.tensors[1]
        self.opened = []

    def expect(self, vllm=ONE_RANK, device=GPU):
        rest.expect(self.directory, device, vllm)

    def given(self, *arguments, reaches=True, **named):
        """What vLLM's iterator gives, with the host's memory as the GPU's."""
        def reader(device, threads):
            self.opened.append(Reader(CPU, threads))
            self.opened[-1].reaches = reaches
            return self.opened[-1]
        with mock.patch.object(rest, "Reader", reader):
            return list(rest.default_loader.safetensors_weights_iterator(self.files, *arguments, **named))

    def check_read(self, found):
        self.assertEqual(sorted(name for name, _ in found), sorted(self.all))
        self.assertEqual({name for name, _ in found[:3]}, set(self.tensors[1]), "file 9 is before file 10")
        for name, tensor in found:
            want = self.all[name]
            self.assertEqual((tensor.dtype, tensor.shape), (want.dtype, want.shape), name)
            self.assertTrue(torch.equal(tensor.view(torch.uint8) if tensor.dim() else tensor,
                                        want.view(torch.uint8) if want.dim() else want), name)

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
        with mock.patch.multiple(rest, GROUP=1, AHEAD=1):
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
        rest.waiting[self.directory + "-other"] = GPU
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
        with mock.patch.object(rest.torch, "empty", no_memory):
            self.check_read(self.given(False))
        self.assertEqual(failed, [1])
        self.assertEqual(len(self.opened), 2)

    def test_stopped(self):
        """vLLM stops in the middle: no request may write to memory that is free again."""
        self.expect()
        with mock.patch.object(rest, "Reader", lambda device, threads: self.opened.append(Reader(CPU, threads)) or self.opened[-1]):
            weights = rest.default_loader.safetensors_weights_iterator(self.files, False)
            next(weights)
            weights.close()
        self.assertFalse(self.opened[0].close.alive)

    def test_file_that_shrinks(self):
        self.expect()
        stored = rest.stored_in(self.files)
        os.truncate(self.files[1], 1000)
        with mock.patch.object(rest, "stored_in", lambda files: stored), self.assertRaisesRegex(Refused, "rest-9.*did it change"):
            self.given(False)


if __name__ == "__main__":
    unittest.main()
