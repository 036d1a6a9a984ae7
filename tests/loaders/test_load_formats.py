"""--load-format: what the plugins refuse before anything is read, weights that another process holds, and the tables of
the man pages, whose rows tests/engines/*_load_formats.py have run in the engines' own loaders."""

import json
import os
import re
import sys
import unittest
from unittest import mock

import torch

from golden import same
from mxfp4_pack import Refused
from mxfp4_pack.sglang import arguments
from sglang_case import SglangCase
from sglang_case import gpt_oss as sglang_gpt_oss
from vllm_case import DEEPSEEK, GPT, VllmCase, deepseek, gpt_oss, held, quantization, vllm
from mxfp4_pack.vllm import load_formats, weight_cache

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Vllm(VllmCase):
    def refuses(self, message, checkpoint, load_format):
        with mock.patch("mxfp4_pack._loading.Reader", side_effect=AssertionError("a read began")):
            super().refuses(f"cannot be served with --load-format {load_format} ({message}). Leave it out", checkpoint,
                            load_format=load_format)

    def test_refused_before_anything_is_read(self):
        for load_format, reason in load_formats.REASONS.items():
            with self.subTest(load_format=load_format):
                self.refuses(reason, gpt_oss("marlin"), load_format)

    def test_objects_that_a_daemon_cannot_pass(self):
        self.refuses("its daemon passes parameters only, and the weights of triton are other objects",
                     gpt_oss("triton-hopper"), "ipc_cache")

    def mapped(self, checkpoint, prefix, change=lambda name, tensor: tensor):
        """A layer that was built without memory and has got the parameters of another process's layer."""
        daemons = self.serve(checkpoint, prefix)
        self.assertTrue(daemons.quant_method.supports_pre_processed_weights)
        parameters = {name: change(name, p) for name, p in daemons.named_parameters()}

        def register(layers):
            self.assertTrue(all(p.is_meta for p in layers[prefix].parameters()))
            layers[prefix]._parameters.update({name: torch.nn.Parameter(p.data, requires_grad=False)
                                               for name, p in parameters.items()})

        utils = sys.modules["vllm.model_executor.utils"]
        with mock.patch.object(utils, "is_weights_pre_processed", lambda: True, create=True), \
                mock.patch("mxfp4_pack._loading.Reader", side_effect=AssertionError("a read began")):
            return parameters, self.serve(checkpoint, prefix, device="meta", load_format="ipc_cache",
                                          before_processing=register)

    def test_weights_of_a_daemon(self):
        for make, prefix in ((gpt_oss, GPT.format(0)), (deepseek, DEEPSEEK.format(0))):
            for backend in ("marlin", "flashinfer-cutlass"):
                with self.each(family=make.__name__, backend=backend):
                    checkpoint = make(backend)
                    parameters, layer = self.mapped(checkpoint, prefix)
                    for key, want in checkpoint.expected(("model", 0)).items():
                        same(self, held(layer, key), want, key)
                    self.assertEqual(layer.quant_method.moe_kernel[0], "kernel")
                    for name, parameter in layer.named_parameters():
                        self.assertEqual(parameter.data_ptr(), parameters[name].data_ptr(), name)

    def test_other_weights_of_a_daemon(self):
        for other in (lambda tensor: tensor[:-1], lambda tensor: tensor.to("meta")):
            change = lambda name, tensor, other=other: other(tensor) if name == "w2_weight" else tensor  # noqa: E731
            with self.assertRaisesRegex(Refused, "vllm preload holds no w2_weight of [0-9]+ bytes. Start it again"):
                self.mapped(gpt_oss("marlin"), GPT.format(0), change)

    def test_a_changed_canary_of_a_daemon(self):
        """The engine that attaches compares the canary itself."""
        take = weight_cache.take

        def with_bug(*given):
            vllm.converter_bug.value = True
            quantization.canaries_passed.clear()
            return take(*given)
        with self.assertRaisesRegex(Refused, "does not fit the installed vllm"), \
                mock.patch.object(weight_cache, "take", with_bug):
            self.mapped(gpt_oss("marlin"), GPT.format(0))

    def test_new_experts_are_not_written_into_a_daemons_memory(self):
        _, layer = self.mapped(gpt_oss("marlin"), GPT.format(0))
        self.assertEqual(layer.quant_method.held, {})


class Sglang(SglangCase):
    def test_refused_with_the_reason(self):
        for load_format in ("pt", "runai_streamer", *arguments.REASONS):
            with self.each(load_format=load_format):
                reason = arguments.REASONS.get(load_format, arguments.OTHERS)
                self.refuses(f"--load-format {load_format} ({reason}). Leave it out", sglang_gpt_oss("marlin"),
                             load_format=load_format)

    def test_formats_of_the_default_loader(self):
        for load_format in arguments.LOAD_FORMATS:
            with self.each(load_format=load_format):
                self.assertTrue(self.serve(sglang_gpt_oss("marlin"), load_format=load_format))


def rows():
    with open(os.path.join(ROOT, "tests", "engines", "load_formats.json")) as file:
        return json.load(file)


def table_of(engine):
    """{format: the text of its entry} of an engine's list below LOAD FORMATS."""
    with open(os.path.join(ROOT, "man", "mxfp4-pack-loaders.7")) as file:
        section = re.search(rf"^\.Sh LOAD FORMATS\n.*?^\.Ss {engine}\n(.*?)^\.S[hs] ", file.read(), re.M | re.S)[1]
    entries = re.split(r"^\.It Cm ", section, flags=re.M)[1:]
    found = {}
    for entry in entries:
        names, _, text = entry.partition("\n")
        found |= {name: text for name in names.split(" , ")}
    return found


class Tables(unittest.TestCase):
    def test_man_pages_have_the_rows_that_were_run(self):
        for engine in ("vllm", "sglang"):
            table = table_of(engine)
            shown = {row["format"]: row["shown"] for row in rows() if row["engine"] == engine}
            self.assertEqual(set(table), set(shown))
            for load_format, text in table.items():
                self.assertEqual("efused" in text.splitlines()[0], shown[load_format] == "refused", (engine, load_format))

    def test_plugins_agree_with_the_rows(self):
        shown = {(row["engine"], row["format"]): row["shown"] for row in rows()}
        for (engine, load_format), how in shown.items():
            is_refused = load_format in load_formats.REASONS if engine == "vllm" else load_format not in arguments.LOAD_FORMATS
            self.assertEqual(is_refused, how == "refused", (engine, load_format))


if __name__ == "__main__":
    unittest.main()
