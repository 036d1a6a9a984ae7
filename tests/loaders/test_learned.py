"""Outputs of layout files that were learned from a conversion, through vLLM's loader. MXFP4_PACK names the program."""

import io
import json
import os
import subprocess
import tempfile
import unittest
from contextlib import redirect_stderr

import torch

import formats
import vllm_stand_in as vllm
from golden import TESTDATA, same
from mxfp4_pack import Refused
from mxfp4_pack.learn.layout import learn, to_text
from mxfp4_pack.learn.probe import Probe, Size
from packed_dir import Checkpoint
from raw_layers import deepseek_layers, gpt_oss_layers, tensors_of
from test_learn import engine
from test_tool import PROGRAM
from test_vllm import held, quantization

TINY = {"gpt-oss": (Size(96, 160, True), "mlp", None), "deepseek-v4": (Size(128, 64, False), "ffn", 10.0)}


@unittest.skipUnless(PROGRAM, "MXFP4_PACK names no mxfp4-pack: its output is not tested here")
class Learned(unittest.TestCase):
    def setUp(self):
        parent = tempfile.TemporaryDirectory()
        self.addCleanup(parent.cleanup)
        self.out, self.file = os.path.join(parent.name, "out"), os.path.join(parent.name, "layout.json")
        quantization.canaries_passed.clear()
        self.addCleanup(setattr, vllm.converter_bug, "value", False)

    def convert(self, model, change=lambda file: None):
        size, _, _ = TINY[model]
        with redirect_stderr(io.StringIO()):
            learned = learn(Probe(engine("vllm", "marlin", size.bias, formats.marlin), size), size.bias)
        made = json.loads(to_text("learned", "vllm", learned, {"moe-backend": "marlin"}))
        change(made)
        with open(self.file, "w") as file:
            json.dump(made, file)
        subprocess.run([PROGRAM, "convert", os.path.join(TESTDATA, "tiny", model), self.out, "--layout", self.file, "-q",
                        *(["--require-loader"] if "canary" in made else [])], check=True)

    def serve(self, model):
        """(what the layers must hold, the layers)"""
        source = os.path.join(TESTDATA, "tiny", model)
        with open(os.path.join(source, "config.json")) as file:
            config = json.load(file)
        size, module, limit = TINY[model]
        layers_of = gpt_oss_layers if size.bias else deepseek_layers
        checkpoint = Checkpoint("vllm", "marlin", config["model_type"], size.hidden, size.intermediate,
                                layers_of(tensors_of(source), config))
        prefixes = [f"model.layers.{n}.{module}.experts" for n in range(len(checkpoint.layers))]
        return checkpoint, vllm.serve(self.out, checkpoint, prefixes, swiglu_limit=limit)

    def test_they_are_served(self):
        for model in TINY:
            with self.subTest(model):
                self.setUp()
                self.convert(model)
                checkpoint, layers = self.serve(model)
                self.assertEqual(len(layers), len(checkpoint.layers))
                for layer, key in zip(layers.values(), checkpoint.layers):
                    self.assertEqual(layer.quant_method.packed.backend, "learned")
                    self.assertTrue(layer.quant_method.packed.canary_is_equal)
                    for part, want in checkpoint.expected(key).items():
                        same(self, held(layer, part), want, (key, part))

    def refused(self, message, change=lambda file: None):
        self.convert("gpt-oss", change)
        with self.assertRaisesRegex(Refused, message) as refusal:
            self.serve("gpt-oss")
        self.assertIn("--layout FILE --force", str(refusal.exception))

    def test_a_conversion_that_makes_other_bytes_is_refused(self):
        vllm.converter_bug.value = True
        self.refused(r"it makes other bytes of the layout file's canary \(w2_weight\)")

    def test_a_file_without_canary_is_refused(self):
        self.refused("its layout file has no canary", lambda file: file.pop("canary"))


if __name__ == "__main__":
    unittest.main()
