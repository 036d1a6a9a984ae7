"""MXFP4_PACK_FALLBACK=unpack: if an output does not fit the engine, the engine converts the unpacked experts."""

import os
import tempfile
import unittest
from unittest import mock

import torch

import formats
import sglang_stand_in
from mxfp4_pack import Refused
from packed_dir import Checkpoint, flip_canary
from program import convert, needs_program, run
from raw_layers import checkpoint_of
from serve_output import all_same, reset, serve_output, set_of

UNPACK = {"MXFP4_PACK_FALLBACK": "unpack"}
SIZES = {"gpt-oss-20b": (96, 384), "deepseek-v4-flash": (256, 256)}


@needs_program
class Fallback(unittest.TestCase):
    def setUp(self):
        self.directory = self.enterContext(tempfile.TemporaryDirectory())
        reset()
        self.addCleanup(reset)

    def checkpoint(self, engine, backend, model, *options):
        """(an output, the engine's own conversion of the checkpoint)"""
        source, out = os.path.join(self.directory, model), os.path.join(self.directory, f"{engine}-{backend}-{model}")
        if not os.path.isdir(source):
            hidden, intermediate = map(str, SIZES[model])
            run("synth", model, source, "--tiny", "--hidden", hidden, "--intermediate", intermediate)
        convert(source, out, engine, backend, *options)
        return out, checkpoint_of(source, engine, backend)

    def falls_back(self, out, checkpoint, expected=None, **given):
        """Refused, with an offer; and taken up on it, one warning and the engine's own bytes."""
        with self.assertRaises(Refused) as caught:
            serve_output(out, checkpoint, 1, **given)
        self.assertIn("Or set MXFP4_PACK_FALLBACK=unpack", str(caught.exception))
        with mock.patch.dict(os.environ, UNPACK), self.assertLogs(level="WARNING") as log:
            layer, = serve_output(out, checkpoint, 1, **given)
        line, = log.output
        self.assertIn(f"mxfp4-pack convert CHECKPOINT {out} --engine {checkpoint.engine}", line)
        self.assertNotIn("Or set", line)
        all_same(self, checkpoint, layer, expected or checkpoint.expected(("model", 0)))
        self.assertTrue(set_of(layer).finished)  # packed tensors that were on their way are dropped
        return layer

    def test_a_changed_canary(self):
        for engine, backend, model, options in (
                ("vllm", "marlin", "gpt-oss-20b", []), ("vllm", "marlin", "deepseek-v4-flash", []),
                ("vllm", "triton-hopper", "gpt-oss-20b", ["--layout-version", "a"]),
                ("sglang", "marlin", "gpt-oss-20b", []), ("sglang", "marlin", "deepseek-v4-flash", []),
                ("sglang", "triton-hopper", "gpt-oss-20b", ["--layout-version", "b64-pairs"])):
            with self.subTest(engine=engine, backend=backend, model=model):
                out, checkpoint = self.checkpoint(engine, backend, model, *options)
                self.falls_back(flip_canary(out), checkpoint)

    def test_another_layout(self):
        """The stand-ins make FlashInfer's first generation."""
        for engine, model in (("vllm", "gpt-oss-20b"), ("vllm", "deepseek-v4-flash"), ("sglang", "gpt-oss-20b"),
                              ("sglang", "deepseek-v4-flash")):
            with self.subTest(engine=engine, model=model):
                out, checkpoint = self.checkpoint(engine, "flashinfer-cutlass", model, "--layout-version", "v2")
                layer = self.falls_back(out, checkpoint)
                if (engine, model) == ("sglang", "deepseek-v4-flash"):
                    self.assertTrue(torch.equal(layer.quant_method._swiglu_limit_tensor,
                                                torch.full((layer.num_local_experts,), 10.0)))

    def test_another_padding(self):
        for engine in ("vllm", "sglang"):
            with self.subTest(engine=engine):
                out, checkpoint = self.checkpoint(engine, "marlin", "gpt-oss-20b")
                _, multiple, pad = formats.PADDING[engine, "marlin"]
                with mock.patch.dict(formats.PADDING, {(engine, "marlin"): (128, multiple, pad)}):
                    self.falls_back(out, checkpoint)

    def test_ranks_and_experts(self):
        out, checkpoint = self.checkpoint("vllm", "marlin", "gpt-oss-20b")
        expert_map = torch.full((checkpoint.expected(("model", 0))["w2", "codes"].shape[0],), -1)
        owned = [1, 2]
        expert_map[owned] = torch.arange(2)
        self.falls_back(flip_canary(out), checkpoint, {k: t[owned] for k, t in checkpoint.expected(("model", 0)).items()},
                        expert_map=expert_map)
        raw = checkpoint.layers["model", 0]
        out, _ = self.checkpoint("sglang", "marlin", "gpt-oss-20b", "--tp-size", "2")
        ranks = []
        for rank in range(2):
            part = {key: t.chunk(2, dim=1)[rank] if key[0] == "w13" else t for key, t in raw.items()}
            part |= {key: t.chunk(2, dim=2)[rank] for key, t in raw.items() if key[0] == "w2" and key[1] != "bias"}
            part["w2", "bias"] = raw["w2", "bias"] if rank == 0 else torch.zeros_like(raw["w2", "bias"])
            ranks.append({key: t.contiguous() for key, t in part.items()})
        two = Checkpoint("sglang", "marlin", "gpt_oss", 96, 192, {("model", 0): ranks})
        flip_canary(out)
        sglang_stand_in.TP.size = 2
        for sglang_stand_in.TP.rank in range(2):
            self.falls_back(out, two, two.expected(("model", 0), sglang_stand_in.TP.rank))

    def test_one_warning_for_all_layers(self):
        out, checkpoint = self.checkpoint("vllm", "marlin", "gpt-oss-20b")
        with mock.patch.dict(os.environ, UNPACK), self.assertLogs(level="WARNING") as log:
            layers = serve_output(flip_canary(out), checkpoint)
        self.assertEqual((len(log.output), len(layers) > 1), (1, True))
        for layer, key in zip(layers, checkpoint.layers):
            all_same(self, checkpoint, layer, checkpoint.expected(key))

    def test_what_still_stops_a_start(self):
        out, checkpoint = self.checkpoint("vllm", "marlin", "gpt-oss-20b")
        flip_canary(out)
        with mock.patch.dict(os.environ, UNPACK | {"MXFP4_PACK_FALLBACK": "1"}), \
                self.assertRaisesRegex(Refused, "MXFP4_PACK_FALLBACK is '1', it can only be unpack"):
            serve_output(out, checkpoint, 1)
        with open(os.path.join(out, "packed/packed-00001.safetensors"), "r+b") as file:
            file.seek(4096)
            file.write(b"\xff\xfe")
        with mock.patch.dict(os.environ, UNPACK), self.assertRaisesRegex(Refused, "does not have the checksum in"):
            serve_output(out, checkpoint, 1)


if __name__ == "__main__":
    unittest.main()
