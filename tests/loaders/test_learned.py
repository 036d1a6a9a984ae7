"""Outputs of layout files that were learned from a conversion, through the loaders. MXFP4_PACK names the program."""

import io
import json
import os
import subprocess
import tempfile
import unittest
from contextlib import redirect_stderr

import formats
import sglang_stand_in
import vllm_stand_in as vllm
from golden import TESTDATA, same
from mxfp4_pack import Refused
from mxfp4_pack.learn.layout import learn, to_text
from mxfp4_pack.learn.probe import Probe, Size
from packed_dir import Checkpoint
from raw_layers import deepseek_layers, gpt_oss_layers, tensors_of
from sglang_case import all_same, hooks
from test_learn import engine, sglang_marlin, triton
from test_tool import PROGRAM
from test_vllm import held, quantization

TINY = {"gpt-oss": (Size(96, 160, True), "mlp", None), "deepseek-v4": (Size(128, 64, False), "ffn", 10.0)}


@unittest.skipUnless(PROGRAM, "MXFP4_PACK names no mxfp4-pack: its output is not tested here")
class Learned(unittest.TestCase):
    def setUp(self):
        parent = self.enterContext(tempfile.TemporaryDirectory())
        self.out, self.file = os.path.join(parent, "out"), os.path.join(parent, "layout.json")
        quantization.canaries_passed.clear()
        hooks.manifest = None
        for stand_in in (vllm, sglang_stand_in):
            self.addCleanup(setattr, stand_in.converter_bug, "value", False)

    def convert(self, model, change=lambda file: None, of=("vllm", "marlin", formats.marlin), kernel="marlin"):
        size, _, _ = TINY[model]
        name, backend, conversion = of
        with redirect_stderr(io.StringIO()):
            learned = learn(Probe(engine(name, backend, size.bias, conversion), size), size.bias)
        made = json.loads(to_text("learned", name, learned, {"moe-backend": kernel}))
        change(made)
        with open(self.file, "w") as file:
            json.dump(made, file)
        subprocess.run([PROGRAM, "convert", os.path.join(TESTDATA, "tiny", model), self.out, "--layout", self.file, "-q",
                        *([] if "canary" in made else ["--no-loader"])], check=True)

    def checkpoint(self, model, engine="vllm", backend="marlin"):
        source = os.path.join(TESTDATA, "tiny", model)
        with open(os.path.join(source, "config.json")) as file:
            config = json.load(file)
        size, _, _ = TINY[model]
        layers_of = gpt_oss_layers if size.bias else deepseek_layers
        return Checkpoint(engine, backend, config["model_type"], size.hidden, size.intermediate,
                          layers_of(tensors_of(source), config))

    def serve(self, model, backend="marlin"):
        """(the expected tensors of the layers, the layers)"""
        checkpoint, (_, module, limit) = self.checkpoint(model, "vllm", backend), TINY[model]
        prefixes = [f"model.layers.{n}.{module}.experts" for n in range(len(checkpoint.layers))]
        return checkpoint, vllm.serve(self.out, checkpoint, prefixes, swiglu_limit=limit)

    def test_they_are_served(self):
        for model, backend, conversion, kernel in (
                ("gpt-oss", "marlin", formats.marlin, "marlin"), ("deepseek-v4", "marlin", formats.marlin, "marlin"),
                ("gpt-oss", "triton-hopper", triton, "triton")):
            with self.subTest(model=model, backend=backend):
                self.setUp()
                self.convert(model, of=("vllm", backend, conversion), kernel=kernel)
                checkpoint, layers = self.serve(model, backend)
                self.assertEqual(len(layers), len(checkpoint.layers))
                for layer, key in zip(layers.values(), checkpoint.layers):
                    self.assertEqual(layer.quant_method.packed.backend, "learned")
                    self.assertTrue(layer.quant_method.packed.canary_is_equal)
                    for part, want in checkpoint.expected(key).items():
                        same(self, held(layer, part), want, (key, part))

    def test_sglang_serves_them(self):
        for model, conversion in (("gpt-oss", sglang_marlin), ("deepseek-v4", formats.marlin)):
            with self.subTest(model=model):
                self.setUp()
                self.convert(model, of=("sglang", "marlin", conversion))
                checkpoint = self.checkpoint(model, "sglang")
                keys = [key for key in checkpoint.layers if key[0] == "model"]
                layers = sglang_stand_in.serve(self.out, checkpoint, [(f"model.layers.{n}.mlp.experts", n) for _, n in keys])
                for layer, key in zip(layers, keys):
                    self.assertEqual(layer.mxfp4_pack.set.backend, "learned")
                    self.assertTrue(layer.mxfp4_pack.set.canary_is_equal)
                    all_same(self, checkpoint, layer, checkpoint.expected(key))

    def test_a_conversion_of_sglang_that_makes_other_bytes_is_refused(self):
        self.convert("gpt-oss", of=("sglang", "marlin", sglang_marlin))
        sglang_stand_in.converter_bug.value = True
        with self.assertRaisesRegex(Refused, r"it makes other bytes of the layout file's canary \(w2_weight\)"):
            sglang_stand_in.serve(self.out, self.checkpoint("gpt-oss", "sglang"), [("model.layers.0.mlp.experts", 0)])

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
