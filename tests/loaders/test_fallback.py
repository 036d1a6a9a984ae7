"""MXFP4_PACK_FALLBACK=unpack: if an output does not fit the engine, the engine converts the unpacked experts."""

import json
import os
import subprocess
import tempfile
import unittest
from unittest import mock

import torch

import formats
import sglang_stand_in
import vllm_stand_in
from golden import same
from mxfp4_pack import Refused
from packed_dir import Checkpoint, flip_canary
from raw_layers import deepseek_layers, gpt_oss_layers, tensors_of
from test_sglang import all_same
from test_sglang import hooks as sglang_hooks
from test_tool import PROGRAM
from test_vllm import held, quantization

UNPACK = {"MXFP4_PACK_FALLBACK": "unpack"}
SIZES = {"gpt-oss-20b": (96, 384), "deepseek-v4-flash": (256, 256)}


@unittest.skipUnless(PROGRAM, "MXFP4_PACK names no mxfp4-pack: its output is not tested here")
class Fallback(unittest.TestCase):
    def setUp(self):
        self.directory = self.enterContext(tempfile.TemporaryDirectory())
        quantization.canaries_passed.clear()
        sglang_stand_in.TP.size, sglang_stand_in.TP.rank, sglang_stand_in.TP.ep_rank = 1, 0, 0
        sglang_stand_in.scale_name.value = "weight_scale"
        sglang_hooks.manifest = None

    def checkpoint(self, engine, backend, model, *options):
        """(an output, the engine's own conversion of the checkpoint)"""
        source, out = os.path.join(self.directory, model), os.path.join(self.directory, f"{engine}-{backend}-{model}")
        hidden, intermediate = SIZES[model]
        if not os.path.isdir(source):
            subprocess.run([PROGRAM, "synth", model, source, "--tiny", "--hidden", str(hidden), "--intermediate",
                            str(intermediate), "-q"], check=True)
        subprocess.run([PROGRAM, "convert", source, out, "--engine", engine, "--backend", backend, *options, "--no-loader",
                        "-q"], check=True)
        with open(os.path.join(source, "config.json")) as file:
            config = json.load(file)
        layers = (gpt_oss_layers if model == "gpt-oss-20b" else deepseek_layers)(tensors_of(source), config)
        return out, Checkpoint(engine, backend, config["model_type"], hidden, intermediate, layers)

    def serve(self, out, checkpoint, **given):
        """The first layer."""
        if checkpoint.engine == "sglang":
            sglang_hooks.manifest = None
            return sglang_stand_in.serve(out, checkpoint, [("model.layers.0.mlp.experts", 0)], **given)[0]
        gpt_oss = checkpoint.model_type == "gpt_oss"
        prefix = f"model.layers.0.{'mlp' if gpt_oss else 'ffn'}.experts"
        return vllm_stand_in.serve(out, checkpoint, [prefix], swiglu_limit=None if gpt_oss else 10.0, **given)[prefix]

    def all_same(self, layer, checkpoint, expected):
        if checkpoint.engine == "sglang":
            return all_same(self, checkpoint, layer, expected)
        for key, want in expected.items():
            same(self, held(layer, key), want, key)

    def falls_back(self, out, checkpoint, expected=None, **given):
        """Refused, with an offer; and taken up on it, one warning and the engine's own bytes."""
        with self.assertRaises(Refused) as caught:
            self.serve(out, checkpoint, **given)
        self.assertIn("Or set MXFP4_PACK_FALLBACK=unpack", str(caught.exception))
        with mock.patch.dict(os.environ, UNPACK), self.assertLogs(level="WARNING") as log:
            layer = self.serve(out, checkpoint, **given)
        line, = log.output
        self.assertIn(f"mxfp4-pack convert CHECKPOINT {out} --engine {checkpoint.engine}", line)
        self.assertNotIn("Or set", line)
        self.all_same(layer, checkpoint, expected or checkpoint.expected(("model", 0)))
        set_ = layer.mxfp4_pack.set if checkpoint.engine == "sglang" else layer.quant_method.packed
        self.assertTrue(set_.finished)  # packed tensors that were on their way are dropped
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
        prefixes = [f"model.layers.{n}.mlp.experts" for n in range(len(checkpoint.layers))]
        with mock.patch.dict(os.environ, UNPACK), self.assertLogs(level="WARNING") as log:
            layers = vllm_stand_in.serve(flip_canary(out), checkpoint, prefixes)
        self.assertEqual((len(log.output), len(layers) > 1), (1, True))
        for prefix, key in zip(prefixes, checkpoint.layers):
            self.all_same(layers[prefix], checkpoint, checkpoint.expected(key))

    def test_what_still_stops_a_start(self):
        out, checkpoint = self.checkpoint("vllm", "marlin", "gpt-oss-20b")
        flip_canary(out)
        with mock.patch.dict(os.environ, UNPACK | {"MXFP4_PACK_FALLBACK": "1"}), \
                self.assertRaisesRegex(Refused, "MXFP4_PACK_FALLBACK is '1', it can only be unpack"):
            self.serve(out, checkpoint)
        with open(os.path.join(out, "packed/packed-00001.safetensors"), "r+b") as file:
            file.seek(4096)
            file.write(b"\xff\xfe")
        with mock.patch.dict(os.environ, UNPACK), self.assertRaisesRegex(Refused, "does not have the checksum in"):
            self.serve(out, checkpoint)


if __name__ == "__main__":
    unittest.main()
