"""Outputs of layout files that were learned from a conversion, through the loaders."""

import io
import json
import os
import tempfile
import unittest
from contextlib import redirect_stderr

import formats
import sglang_stand_in
import vllm_stand_in as vllm
from golden import TESTDATA
from mxfp4_pack import Refused
from mxfp4_pack.learn.layout import learn, to_text
from mxfp4_pack.learn.probe import Probe, Size
from program import needs_program, run
from raw_layers import checkpoint_of
from serve_output import all_same, reset, serve_output, set_of
from test_learn import engine, sglang_marlin, triton

TINY = {"gpt-oss": Size(96, 160, True), "deepseek-v4": Size(128, 64, False)}


@needs_program
class Learned(unittest.TestCase):
    def setUp(self):
        parent = self.enterContext(tempfile.TemporaryDirectory())
        self.out, self.file = os.path.join(parent, "out"), os.path.join(parent, "layout.json")
        reset()
        self.addCleanup(reset)

    def convert(self, model, change=lambda file: None, of=("vllm", "marlin", formats.marlin), kernel="marlin"):
        """What the engine itself makes of the checkpoint."""
        size, source = TINY[model], os.path.join(TESTDATA, "tiny", model)
        name, backend, conversion = of
        with redirect_stderr(io.StringIO()):
            learned = learn(Probe(engine(name, backend, size.bias, conversion), size), size.bias)
        made = json.loads(to_text("learned", name, learned, {"moe-backend": kernel}))
        change(made)
        with open(self.file, "w") as file:
            json.dump(made, file)
        run("convert", source, self.out, "--layout", self.file, *([] if "canary" in made else ["--no-loader"]))
        return checkpoint_of(source, name, backend)

    def test_they_are_served(self):
        for model, of, kernel in (
                ("gpt-oss", ("vllm", "marlin", formats.marlin), "marlin"),
                ("deepseek-v4", ("vllm", "marlin", formats.marlin), "marlin"),
                ("gpt-oss", ("vllm", "triton-hopper", triton), "triton"),
                ("gpt-oss", ("sglang", "marlin", sglang_marlin), "marlin"),
                ("deepseek-v4", ("sglang", "marlin", formats.marlin), "marlin")):
            with self.subTest(model=model, engine=of[0], backend=of[1]):
                self.setUp()
                checkpoint = self.convert(model, of=of, kernel=kernel)
                layers = serve_output(self.out, checkpoint)
                self.assertGreaterEqual(len(layers), len(checkpoint.layers) - 1)  # SGLang's stand-in serves no draft
                for layer, key in zip(layers, checkpoint.layers):
                    self.assertEqual(set_of(layer).backend, "learned")
                    self.assertTrue(set_of(layer).canary_is_equal)
                    all_same(self, checkpoint, layer, checkpoint.expected(key))

    def test_a_conversion_that_makes_other_bytes_is_refused(self):
        for stand_in, conversion in ((vllm, formats.marlin), (sglang_stand_in, sglang_marlin)):
            with self.subTest(engine=stand_in.__name__):
                self.setUp()
                checkpoint = self.convert("gpt-oss", of=(stand_in.__name__.split("_")[0], "marlin", conversion))
                stand_in.converter_bug.value = True
                self.refused(r"it makes other bytes of the layout file's canary \(w2_weight\)", checkpoint)

    def refused(self, message, checkpoint):
        with self.assertRaisesRegex(Refused, message) as refusal:
            serve_output(self.out, checkpoint, 1)
        self.assertIn("--layout FILE --force", str(refusal.exception))

    def test_a_file_without_canary_is_refused(self):
        self.refused("its layout file has no canary", self.convert("gpt-oss", lambda file: file.pop("canary")))


if __name__ == "__main__":
    unittest.main()
