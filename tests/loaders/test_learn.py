"""Layouts learned from conversions: those that formats.py writes by formulas, and those that are no rearrangement."""

import io
import json
import os
import subprocess
import tempfile
import unittest
from contextlib import redirect_stderr
from unittest import mock

import torch

import formats
from mxfp4_pack.learn import NoRearrangement, __main__ as command
from mxfp4_pack.learn.layout import learn
from mxfp4_pack.learn.probe import Probe, Size

KEYS = {"w13": ("w13", "codes"), "w13_scale": ("w13", "scales"), "w13_bias": ("w13", "bias"),
        "w2": ("w2", "codes"), "w2_scale": ("w2", "scales"), "w2_bias": ("w2", "bias")}
NAMES = {key: name.replace("13", "13_weight").replace("w2", "w2_weight") for name, key in KEYS.items()}
TINY = Size(96, 160, True)  # of testdata/tiny/gpt-oss


def engine(name, backend, pairs, convert):
    """The conversion of an engine that pads a layer as it does."""
    def call(layer):
        h, i = formats.padded_sizes(name, backend, layer["w2"].shape[1], layer["w13"].shape[1] // 2)
        raw = formats.pad({KEYS[k]: t for k, t in layer.items()}, pairs, h, i, formats.PADDING[name, backend][2])
        return {NAMES[k]: t for k, t in convert(raw).items()}
    return call


def triton(raw):
    out = {}
    for (role, part), t in raw.items():
        out[role, part] = {"codes": formats.hopper_codes, "scales": lambda s: formats.hopper_scales(s, 4),
                           "bias": lambda b: b.float()}[part](t)
    return out


def sglang_marlin(raw):
    return formats.marlin(formats.reorder_w13(raw, formats.gate_up))


def flashinfer(raw):
    return formats.flashinfer_sm90_v1(formats.reorder_w13(raw, lambda t: formats.swap(formats.gate_up(t))))


def plain(layer):
    return {NAMES[KEYS[name]]: t.clone() for name, t in layer.items()}


def changed(**changes):
    """A plain conversion, but for some tensors."""
    def call(layer):
        return plain(layer) | {name: change(layer) for name, change in changes.items()}
    return call


class Learn(unittest.TestCase):
    def setUp(self):
        self.dir = self.enterContext(tempfile.TemporaryDirectory())
        self.enterContext(redirect_stderr(io.StringIO()))

    def file(self, call, size=TINY, pairs=True, name="learned"):
        learned = learn(Probe(call, size), pairs)
        path = os.path.join(self.dir, name + ".json")
        with open(path, "w") as file:
            file.write(command.to_text(name, "vllm", learned, {}))
        return path

    def program(self, *arguments):
        program = os.environ.get("MXFP4_PACK")
        if not program:
            self.skipTest("MXFP4_PACK names no program")
        return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout

    def test_learned_files_are_the_built_in_backends(self):
        cases = {"marlin of vllm, layout version 1": engine("vllm", "marlin", True, formats.marlin),
                 "marlin of sglang, layout version 1": engine("sglang", "marlin", True, sglang_marlin),
                 "triton-hopper of vllm, layout version a": engine("vllm", "triton-hopper", True, triton),
                 "flashinfer-cutlass of vllm, layout version v1": engine("vllm", "flashinfer-cutlass", True, flashinfer)}
        for number, (want, call) in enumerate(cases.items()):
            with self.subTest(want):
                path = self.file(call, name=f"learned{number}")
                self.assertEqual(self.program("layout", path).splitlines()[-1], "the same bytes as " + want)

    def test_the_canary_shows_a_file_that_was_changed(self):
        path = self.file(engine("vllm", "marlin", True, formats.marlin))
        with open(path) as file:
            made = json.load(file)
        modes = made["tensors"][3]["modes"]
        modes[4:6] = modes[5:3:-1]  # a bijection too
        with open(path, "w") as file:
            json.dump(made, file)
        with self.assertRaises(subprocess.CalledProcessError) as refusal:
            self.program("layout", path)
        self.assertIn("canary.w2_weight: the layouts pack the canary to ", refusal.exception.stderr)

    def refused(self, message, **changes):
        with self.assertRaisesRegex(NoRearrangement, message):
            learn(Probe(changed(**changes), Size(64, 32, False)), False)

    @unittest.skipUnless(hasattr(torch, "float4_e2m1fn_x2"), "a later torch has it")
    def test_codes_that_torch_calls_fp4(self):
        path = self.file(changed(w13_weight=lambda layer: layer["w13"].view(torch.float4_e2m1fn_x2)))
        with open(path) as file:
            codes = json.load(file)["tensors"][0]
        self.assertEqual([codes[name] for name in ("name", "dtype", "torch_dtype")],
                         ["w13_weight", "U8", "float4_e2m1fn_x2"])

    def test_what_is_no_rearrangement_is_refused(self):
        codes, scales = "w13_weight", "w13_weight_scale"
        self.refused(f"{codes}: expert 0, byte 0, bit 0: the inverse of a source bit", **{codes: lambda x: ~x["w13"]})
        self.refused(f"{codes}: expert 1 has another layout", **{codes: lambda x: torch.stack([x["w13"][0], *x["w13"][1:].flip(1)])})
        self.refused(f"{codes}: no tensor of 2 experts", **{codes: lambda x: x["w13"][:, :, :1].sum()})
        self.refused("w2_weight: expert 0, byte .*: wanted .*, got .*; its bytes depend on more than their place",
                     w2_weight=lambda x: torch.where(x["w2"] == 0x37, 0x38, x["w2"]))
        self.refused(f"{scales}: .*: (no copy of one value|wanted)",
                     **{scales: lambda x: x["w13_scale"] - x["w13_scale"].amin((1, 2), True)})
        with self.assertRaisesRegex(NoRearrangement, "the conversion returned NoneType, a dict of tensors was expected"):
            learn(Probe(lambda layer: None, TINY), True)
        self.refused("w2: stored in no tensor", w2_weight=lambda x: torch.zeros_like(x["w2"]))

    def test_pads_that_repeat_values(self):
        def padded(x):  # the last row twice more, the first column three times
            rows = torch.cat([x["w2"], x["w2"][:, -1:], x["w2"][:, -1:]], 1)
            return torch.cat([rows, *[rows[:, :, :1]] * 3], 2)
        tensors = learn(Probe(changed(w2_weight=padded), Size(64, 32, False)), False).tensors
        tensor = next(t for t in tensors if t.key == "w2_weight")
        self.assertEqual(tensor.repeats, [
            {"rows": [0, 64], "bits": [128, 24], "from": [0, 0], "modes": [[8, 0, 1], [3, 0, 0], [64, 1, 0]]},
            {"rows": [64, 2], "bits": [0, 152], "from": [63, 0],
             "modes": [[8, 0, 1], [[0, k * 8] for k in [*range(16), 0, 0, 0]], [2, 0, 0]]}])

    def test_experts_in_one_dimension_with_their_rows(self):
        call = changed(w13_weight=lambda x: x["w13"].flatten(0, 1), w2_weight=lambda x: x["w2"].flatten()[None])
        tensors = learn(Probe(call, Size(64, 32, False)), False).tensors
        self.assertEqual({t.key: t.stored.shape for t in tensors if t.part == "codes"},
                         {"w13_weight": (64 * 32,), "w2_weight": (64 * 16,)})
        self.refused("w13_weight: expert 0 .*|w13_weight: expert 1 has another layout",
                     w13_weight=lambda x: x["w13"].transpose(0, 1).contiguous())

    def test_memory_that_is_not_written_is_a_pad(self):
        def loose(x):
            out = torch.empty((*x["w2"].shape[:2], 32), dtype=torch.uint8)
            out[:, :, :16] = x["w2"]
            return out
        tensors = learn(Probe(changed(w2_weight=loose), Size(64, 32, False)), False).tensors
        free = {t.key: int(t.map.free.sum()) for t in tensors}
        self.assertEqual(free, {"w13_weight": 0, "w13_weight_scale": 0, "w2_weight": 64 * 16, "w2_weight_scale": 0})
        tensor = next(t for t in tensors if t.key == "w2_weight")
        self.assertEqual((tensor.fit.rows, tensor.fit.row_bytes, {*tensor.pad.values()}), (64, 32, {None}))

    def test_the_command(self):
        path = os.path.join(self.dir, "plain.json")
        arguments = ["--call", "test_learn:plain", "--hidden", "64", "--intermediate", "32", "--name", "mine", "-o", path]
        self.assertEqual(command.main([*arguments, "--made-with", "kernels=1.2"]), 0)
        with open(path) as file:
            made = json.load(file)
        self.assertEqual((made["name"], made["engine"], made["made_with"]),
                         ("mine", "none", {"torch": torch.__version__, "kernels": "1.2"}))
        self.assertEqual(set(made["canary"]), {"w13_weight", "w13_weight_scale", "w2_weight", "w2_weight_scale"})
        self.assertEqual(made["tensors"][0]["modes"], [[256, 0, 1], [64, 1, 0]])
        with self.assertRaises(SystemExit):  # the file is there
            command.main(arguments)
        other = arguments[:-1] + [path + "2"]
        with mock.patch.object(command, "function_of", lambda text: changed(w2_weight=lambda x: ~x["w2"])):
            self.assertEqual(command.main(other), 2)
        self.assertFalse(os.path.exists(path + "2"))
        check = ["--check" if a == "-o" else a for a in arguments]
        self.assertEqual(command.main(check), 0)
        with mock.patch.object(command, "function_of", lambda text: changed(w2_weight=lambda x: x["w2"].roll(1, 1))):
            self.assertEqual(command.main(check), 2)


if __name__ == "__main__":
    unittest.main()
