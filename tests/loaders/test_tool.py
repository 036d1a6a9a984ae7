"""What mxfp4-pack itself writes, through both loaders. MXFP4_PACK names the program."""

import json
import os
import subprocess
import tempfile
import unittest
from contextlib import contextmanager
from unittest import mock

import sglang_stand_in
import vllm_stand_in
from golden import TESTDATA, same
from mxfp4_pack import _program
from packed_dir import Checkpoint
from raw_layers import deepseek_layers, gpt_oss_layers, tensors_of
from test_sglang import all_same
from test_sglang import hooks as sglang_hooks
from test_vllm import held

PROGRAM = os.environ.get("MXFP4_PACK", "")
# the versions of the layouts that formats.py makes
VERSIONS = {"marlin": ["--layout-version", "1"], "flashinfer-cutlass": ["--layout-version", "v1"],
            "triton-hopper": ["--layout-version", "a"]}
SGLANG_VERSIONS = VERSIONS | {"flashinfer-cutlass": ["--layout-version", "v1-corner"],
                              "triton-hopper": ["--layout-version", "b64-pairs"]}


@contextmanager
def no_program():
    """In this context the program is neither installed with the package nor in PATH."""
    with mock.patch.dict(os.environ, PATH="/nowhere"), mock.patch.object(_program, "candidates", tuple):
        yield


@unittest.skipUnless(PROGRAM, "MXFP4_PACK names no mxfp4-pack: its output is not tested here")
class Tool(unittest.TestCase):
    def checkpoints(self, engine, versions=VERSIONS):
        """(a converted tiny checkpoint, its expected tensors) for every backend of the engine that the loaders
        support"""
        listed = json.loads(subprocess.check_output([PROGRAM, "backends", "--json"]))
        listed = listed if isinstance(listed, list) else listed["backends"]
        backends = dict.fromkeys(b["backend"] for b in listed if b["engine"] == engine)
        for name, layers_of in (("gpt-oss", gpt_oss_layers), ("deepseek-v4", deepseek_layers)):
            source = os.path.join(TESTDATA, "tiny", name)
            with open(os.path.join(source, "config.json")) as file:
                config = json.load(file)
            for backend, version in versions.items():
                if backend not in backends or (engine, name) == ("sglang", "deepseek-v4") and backend != "marlin":
                    continue  # SGLang has no Triton for it, and with FlashInfer refuses sizes as tiny as these
                with tempfile.TemporaryDirectory() as parent, self.subTest(engine=engine, model=name, backend=backend):
                    out = os.path.join(parent, "out")
                    subprocess.run([PROGRAM, "convert", source, out, "--engine", engine, "--backend", backend,
                                    *version, "--no-loader", "-q"], check=True)
                    sizes = config["hidden_size"], config.get("moe_intermediate_size", config.get("intermediate_size"))
                    yield out, Checkpoint(engine, backend, config["model_type"], *sizes,
                                          layers_of(tensors_of(source), config))

    def test_vllm(self):
        count = 0
        for out, checkpoint in self.checkpoints("vllm"):
            module = "mlp" if checkpoint.model_type == "gpt_oss" else "ffn"
            prefixes = [f"model.layers.{n}.{module}.experts" for n in range(len(checkpoint.layers))]
            limit = None if checkpoint.model_type == "gpt_oss" else 10.0
            layers = vllm_stand_in.serve(out, checkpoint, prefixes, swiglu_limit=limit)
            for layer, key in zip(layers.values(), checkpoint.layers):
                for part, want in checkpoint.expected(key).items():
                    same(self, held(layer, part), want, (key, part))
                    count += 1
        self.assertGreater(count, 0)

    def test_storage_may_be_larger_than_the_engines(self):
        """The layout for later kernels has more pads; earlier ones read it by its strides."""
        for out, checkpoint in self.checkpoints("vllm", {"triton-hopper": ["--layout-version", "c"]}):
            module = "mlp" if checkpoint.model_type == "gpt_oss" else "ffn"
            prefix = f"model.layers.0.{module}.experts"
            limit = None if checkpoint.model_type == "gpt_oss" else 10.0
            layer = vllm_stand_in.serve(out, checkpoint, [prefix], swiglu_limit=limit)[prefix]
            for part, want in checkpoint.expected(("model", 0)).items():
                got = held(layer, part)
                self.assertGreaterEqual(got.numel(), want.numel())
                same(self, got[tuple(slice(n) for n in want.shape)].contiguous(), want.contiguous(), part)

    def test_sglang(self):
        count = 0
        for out, checkpoint in self.checkpoints("sglang", SGLANG_VERSIONS):
            sglang_hooks.manifest = None
            keys = [key for key in checkpoint.layers if key[0] == "model"]
            layers = sglang_stand_in.serve(out, checkpoint, [(f"model.layers.{n}.mlp.experts", n) for _, n in keys])
            for layer, key in zip(layers, keys):
                all_same(self, checkpoint, layer, checkpoint.expected(key))
                count += 1
        self.assertGreater(count, 0)


if __name__ == "__main__":
    unittest.main()
