"""Common parts of the tests of the vLLM loader: stand-ins for the engine's classes, checkpoints, and serving of a
checkpoint."""

import os
import tempfile
import unittest

import packed_dir
import vllm_stand_in as vllm
from mxfp4_pack import Refused

vllm.install()
import mxfp4_pack.vllm  # noqa: E402
from mxfp4_pack.vllm import quantization  # noqa: E402

mxfp4_pack.vllm.register()

GPT = "model.layers.{}.mlp.experts"
DEEPSEEK = "model.layers.{}.ffn.experts"


def gpt_oss(backend, layers=None):
    return packed_dir.gpt_oss("vllm", backend, layers)


def deepseek(backend, layers=None):
    return packed_dir.deepseek("vllm", backend, layers)


def held(layer, key):
    """The tensor that a layer holds for (role, part) after its processing, as its kernel sees it."""
    role, part = key
    thing = getattr(layer, quantization.KEYWORD[key], None)
    if layer.quant_method.packed.is_triton and part != "bias":
        if part == "scales":
            thing = getattr(layer.quant_method, role + "_precision_config").weight_scale
        return thing.storage.data
    return thing.data


class VllmCase(unittest.TestCase):
    def setUp(self):
        self.directory = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "out")
        quantization.canaries_passed.clear()
        self.addCleanup(setattr, vllm.converter_bug, "value", False)

    def each(self, **values):
        """Begins a subtest with a directory of its own."""
        self.directory += "x"
        return self.subTest(**values)

    def serve_all(self, checkpoint, prefixes, **settings):
        """{prefix: layer}"""
        if not os.path.isdir(self.directory):
            checkpoint.write(self.directory)
        return vllm.serve(self.directory, checkpoint, prefixes, **settings)

    def serve(self, checkpoint, prefix=GPT.format(0), **settings):
        return self.serve_all(checkpoint, [prefix], **settings)[prefix]

    def refuses(self, message, checkpoint=None, prefix=GPT.format(0), **settings):
        with self.assertRaises(Refused) as caught:
            self.serve(checkpoint or gpt_oss("marlin"), prefix, **settings)
        self.assertIn(message, str(caught.exception))
        return str(caught.exception)
