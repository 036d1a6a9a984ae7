"""What mxfp4-pack itself writes, through both loaders."""

import os
import tempfile
import unittest

from golden import TESTDATA, same
from program import SGLANG_VERSIONS, VERSIONS, convert, needs_program
from raw_layers import checkpoint_of
from serve_output import all_same, reset, serve_output
from vllm_case import held


@needs_program
class Tool(unittest.TestCase):
    def checkpoints(self, engine, versions):
        """(a converted tiny checkpoint, its expected tensors) for every backend of the engine that the loaders
        support"""
        reset()
        for name in ("gpt-oss", "deepseek-v4"):
            source = os.path.join(TESTDATA, "tiny", name)
            for backend, version in versions.items():
                if (engine, name) == ("sglang", "deepseek-v4") and backend != "marlin":
                    continue  # SGLang has no Triton for it, and with FlashInfer refuses sizes as tiny as these
                with tempfile.TemporaryDirectory() as parent, self.subTest(engine=engine, model=name, backend=backend):
                    out = os.path.join(parent, "out")
                    convert(source, out, engine, backend, *version)
                    yield out, checkpoint_of(source, engine, backend)

    def test_every_layer(self):
        for engine, versions in (("vllm", VERSIONS), ("sglang", SGLANG_VERSIONS)):
            for out, checkpoint in self.checkpoints(engine, versions):
                layers = serve_output(out, checkpoint)
                self.assertGreater(len(layers), 0)
                for layer, key in zip(layers, checkpoint.layers):
                    all_same(self, checkpoint, layer, checkpoint.expected(key))

    def test_storage_may_be_larger_than_the_engines(self):
        """The layout for later kernels has more pads; earlier ones read it by its strides."""
        for out, checkpoint in self.checkpoints("vllm", {"triton-hopper": ["--layout-version", "c"]}):
            layer, = serve_output(out, checkpoint, 1)
            for part, want in checkpoint.expected(("model", 0)).items():
                got = held(layer, part)
                self.assertGreaterEqual(got.numel(), want.numel())
                same(self, got[tuple(slice(n) for n in want.shape)].contiguous(), want.contiguous(), part)


if __name__ == "__main__":
    unittest.main()
