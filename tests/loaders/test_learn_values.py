"""Learned layouts that store scales as other values or store bits several times. MXFP4_PACK names the program, which
must pack by these layouts to the conversions' bytes."""

import io
import json
import os
import subprocess
import tempfile
import unittest
from contextlib import redirect_stderr

import numpy
import torch

from mxfp4_pack import Manifest, _entries
from mxfp4_pack.learn import NoRearrangement
from mxfp4_pack.learn.layout import check_file, learn, read_file, scales_of, to_text
from mxfp4_pack.learn.probe import Probe, Size
from program import PROGRAM, needs_program
from random_conversions import check_inside, drivers_here, source_layer
from test_learn import changed

SMALL = Size(64, 32, False)
SCALES, CODES = "w13_weight_scale", "w2_weight"


def floats(scales):
    """By the bits of F32, so that 2^-127 becomes 0.0 and 0xFF infinity."""
    return (scales.to(torch.int32) << 23).view(torch.float32)


def twice(tensor, dim):
    return torch.cat([tensor, tensor], dim)


class Values(unittest.TestCase):
    def learned(self, size=SMALL, pairs=False, **changes):
        self.said = io.StringIO()
        with redirect_stderr(self.said):
            return learn(Probe(changed(**changes), size), pairs)

    def tensor(self, name, **changes):
        made = json.loads(to_text("mine", "none", self.learned(**changes), {}))
        return next(t for t in made["tensors"] if t["name"] == name)

    def scales(self, change, of="w13_scale", name=SCALES):
        return self.tensor(name, **{name: lambda x: change(x[of])})

    def refused(self, message, **changes):
        with self.assertRaisesRegex(NoRearrangement, message):
            self.learned(**changes)

    def test_a_conversion_that_raises_at_some_scales(self):
        def taken(scales):
            assert not ((scales == 0) | (scales == 255)).any()
            return scales
        for change, values in ((taken, range(1, 255)), (lambda s: floats(taken(s)), range(1 << 23, 255 << 23, 1 << 23))):
            call = changed(**{SCALES: lambda x: change(x["w13_scale"])})
            with self.assertRaises(AssertionError):
                learn(Probe(call, SMALL), False)
            probe = Probe(call, SMALL, range(1, 255))
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file, redirect_stderr(io.StringIO()):
                file.write(to_text("mine", "none", learn(probe, False), {}))
                file.flush()
                made = next(t for t in read_file(file.name)[2] if t["name"] == SCALES)
                self.assertEqual(made["values"]["of_scales"], [None, *values, None])
                self.assertEqual(scales_of(file.name), range(1, 255))
                check_file(file.name, probe, False)
                said = subprocess.run([PROGRAM, "layout", file.name], capture_output=True, text=True, check=True)
                self.assertIn("for scales 0x01 to 0xfe", said.stdout)
        self.assertIn("no built-in backend has these bytes", said.stdout)  # those of numbers

    def test_all_256_scales_stand_in_the_file(self):
        numbers = numpy.arange(256)
        cases = (("float32", floats, numbers << 23, [64, 0, 1]),
                 ("bfloat16", lambda s: floats(s).bfloat16(), numbers << 7, [32, 0, 1]),
                 ("int32", lambda s: s.to(torch.int32) - 127, numbers - 127 & 0xFFFFFFFF, [64, 0, 1]),
                 ("int32", lambda s: s.to(torch.int32), numbers, [64, 0, 1]),
                 ("int16", lambda s: 300 - s.to(torch.int16), 300 - numbers, [32, 0, 1]),
                 ("uint8", lambda s: 254 - s, 254 - numbers & 0xFF, [16, 0, 1]))
        for dtype, change, want, first in cases:
            with self.subTest(dtype=dtype):
                t = self.scales(change)
                self.assertEqual((t["torch_dtype"], t["add"], t["modes"]), (dtype, 0, [first, [64, 1, 0]]))
                self.assertEqual(t["values"], {"width": first[0] // 16, "of_scales": want.tolist()})

    @unittest.skipUnless(hasattr(torch, "uint32"), "a later torch has it")
    def test_dtypes_that_the_loaders_know(self):
        t = self.scales(lambda s: floats(s).view(torch.uint32))
        self.assertEqual((t["dtype"], t["torch_dtype"]), ("U32", "uint32"))
        for dtype in ("U16", "U32", "U64"):
            self.assertEqual(_entries.BYTES[_entries.DTYPES[dtype]] * 8, int(dtype[1:]))

    def test_a_constant_more_stays_one(self):
        for add in (0, 6):
            t = self.scales(lambda s: s + add)
            self.assertEqual((t["add"], "values" in t), (add, False))

    def test_a_scale_ff_that_is_stored_as_another_has_no_value(self):
        t = self.scales(lambda s: floats(s.clamp(max=254)))
        self.assertEqual(t["values"]["of_scales"], [*(numpy.arange(255) << 23).tolist(), None])
        self.assertIn("scale 0xff becomes 0x7f000000, as another does; a checkpoint with it is refused", self.said.getvalue())

    def test_scales_that_saturate_have_no_value(self):
        t = self.scales(lambda s: (s.int() + 20).clamp(max=255).to(torch.uint8))
        self.assertEqual(t["values"]["of_scales"], [*range(20, 255), *[None] * 21])
        self.assertIn("scales below 0x00 or above 0xea become what others do", self.said.getvalue())
        t = self.scales(lambda s: (s.int() - 6).clamp(min=0).to(torch.uint8))
        self.assertEqual(t["values"]["of_scales"], [*[None] * 7, *range(1, 250)])

    def test_what_is_lossy_is_refused_with_two_scales(self):
        lossy = "that is lossy; 0x40 to 0xbf must become values of their own"
        self.refused(f"{SCALES}: scales 0x3f and 0x40 both become 0x40: {lossy}",
                     **{SCALES: lambda x: x["w13_scale"].clamp(min=64)})
        self.refused(f"{SCALES}: scales 0x3f and 0x40 both become 0x0000: {lossy}",
                     **{SCALES: lambda x: floats(x["w13_scale"]).half()})
        self.refused(f"{SCALES}: scales 0xbf and 0xc0 both become 0x5f800000: {lossy}",
                     **{SCALES: lambda x: floats(x["w13_scale"].clamp(max=191))})
        self.refused(f"{SCALES}: scales as torch.float64; a layout file has values of 1, 2 and 4 bytes",
                     **{SCALES: lambda x: floats(x["w13_scale"]).double()})

    def test_pads_are_values(self):
        pad = torch.nn.functional.pad
        t = self.scales(lambda s: pad(floats(s), (0, 2), value=1.5))
        self.assertEqual((t["row_bytes"], t["storage"], t["pad"]["column"]), (16, {"rows": 64, "bytes": 16}, 0x3FC00000))
        t = self.scales(lambda s: pad(floats(s), (0, 0, 0, 32), value=0.0), "w2_scale", "w2_weight_scale")
        self.assertEqual((t["storage"]["rows"], t["pad"]["storage"]), (96, 0))

    def test_what_is_stored_several_times(self):
        cases = (("each row", SCALES, lambda x: twice(x["w13_scale"], 2), [[16, 0, 1], [2, 0, 0], [64, 1, 0]]),
                 ("all", SCALES, lambda x: twice(x["w13_scale"], 1), [[16, 0, 1], [64, 1, 0], [2, 0, 0]]),
                 ("each", SCALES, lambda x: x["w13_scale"].repeat_interleave(2, 2),
                  [[8, 0, 1], [2, 0, 0], [2, 0, 8], [64, 1, 0]]),
                 ("codes", CODES, lambda x: torch.cat([x["w2"]] * 3, 1), [[128, 0, 1], [64, 1, 0], [3, 0, 0]]),
                 ("codes transposed", CODES, lambda x: twice(x["w2"].transpose(1, 2), 2).contiguous(),
                  [[8, 0, 1], [64, 1, 0], [2, 0, 0], [16, 0, 8]]),
                 ("a code in a byte", CODES, lambda x: torch.stack([(x["w2"] & 15) * 17, (x["w2"] >> 4) * 17], -1).flatten(2),
                  [[4, 0, 1], [2, 0, 0], [32, 0, 4], [64, 1, 0]]))
        for what, name, change, modes in cases:
            with self.subTest(what):
                t = self.tensor(name, **{name: change})
                self.assertEqual(t["modes"], modes)
        self.refused(f"{CODES}: bit 3 of w2, expert 0, is stored 0 times, others 2",
                     **{CODES: lambda x: twice(x["w2"] & 0xF7, 1)})
        self.refused(f"{SCALES}: 256 bytes of an expert, all of it 2 times, that no row order, pads and modes describe",
                     **{SCALES: lambda x: torch.cat([x["w13_scale"].flatten(1), x["w13_scale"].transpose(1, 2).flatten(1)], 1)})

    def test_a_file_is_checked_against_what_is_installed(self):
        made = {SCALES: lambda x: twice(floats(x["w13_scale"]), 1)}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mine.json")
            with open(path, "w") as file:
                file.write(to_text("mine", "none", self.learned(**made), {}))
            check_file(path, Probe(changed(**made), SMALL), False)
            with self.assertRaisesRegex(NoRearrangement, f"{SCALES}: expert 0, byte 2 of a random layer"):
                check_file(path, Probe(changed(**{SCALES: lambda x: twice(floats(x["w13_scale"] + 1), 1)}), SMALL), False)


@needs_program
class Packed(unittest.TestCase):
    """With a learned file, the program packs a checkpoint to the function's bytes."""

    CONVERSIONS = {
        "words of columns, a constant more": {
            "w13_weight": lambda x: x["w13"].flip(2).transpose(1, 2).contiguous().view(torch.int32),
            "w2_weight_scale": lambda x: x["w2_scale"] + 6},
        "float32, padded and transposed": {
            SCALES: lambda x: torch.nn.functional.pad(floats(x["w13_scale"]), (0, 1), value=1.0).transpose(1, 2).contiguous(),
            "w2_weight_scale": lambda x: torch.nn.functional.pad(floats(x["w2_scale"]), (0, 3, 0, 32), value=-2.5)},
        "bfloat16 twice, codes three times": {
            SCALES: lambda x: floats(x["w13_scale"]).bfloat16().repeat_interleave(2, 1),
            "w2_weight_scale": lambda x: 254 - x["w2_scale"],
            CODES: lambda x: torch.cat([x["w2"]] * 3, 2)},
        "codes in a byte, int32": {
            SCALES: lambda x: x["w13_scale"].to(torch.int32) - 127,
            CODES: lambda x: torch.stack([(x["w2"] & 15) * 17, (x["w2"] >> 4) * 17], -1).flatten(2)}}

    def test_the_bytes_are_what_the_function_makes(self):
        for what, changes in self.CONVERSIONS.items():
            with self.subTest(what), tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
                call = changed(**changes)
                packed = Manifest(check_inside(call, folder, drivers_here()[-1:]), "vllm").pick("auto", 1, 0)
                entries = packed.layer("model", 0, "the test")
                experts = range(next(iter(entries.values())).experts)
                tensors = packed.read_layer(entries, experts, torch.device("cpu"))  # as the loaders give it to an engine
                served = {entries[key].parameter: tensor for key, tensor in tensors.items()}
                for name, want in call(source_layer()).items():
                    self.assertEqual((served[name].dtype, served[name].shape), (want.dtype, want.shape))
                    self.assertTrue(torch.equal(*(t.flatten().view(torch.uint8) for t in (served[name], want))), name)


if __name__ == "__main__":
    unittest.main()
