"""Outputs that do not fit, in an installed vLLM's own classes, and vLLM's kernel on a packed layer, without a GPU. For
the replaced parts see vllm_classes.py, and MarlinKernel here.

    MXFP4_PACK=build/mxfp4-pack MXFP4_PACK_LIBRARY=build/libmxfp4_pack.so PYTHONPATH=src/loaders:tests/loaders \
        python3 tests/engines/vllm_fallback.py
"""

import os
import subprocess
import sys
import tempfile
import unittest
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from unittest import mock

import torch
import vllm
from vllm.model_executor.layers.quantization import mxfp4

import formats
import host_kernels
from golden import TESTDATA
from moe import gpt_oss_layer
from mxfp4_pack import Manifest, PackedSet, Refused, check, kernels
from packed_dir import flip_canary
from vllm_classes import CASES, FAMILIES, VERSION, Layers, can_run

PROGRAM = os.environ["MXFP4_PACK"]
ON_PATH = {"PATH": f"{os.path.dirname(os.path.abspath(PROGRAM))}:{os.environ['PATH']}"}


class Fallback(Layers):
    def test_a_changed_canary(self):
        """vLLM converts the unpacked experts itself."""
        for case in CASES:
            for family in FAMILIES:
                for tp in case.tp if can_run(case, family) else ():
                    with self.subTest(backend=case.backend, layout=case.layout, family=family, tp=tp):
                        self.falls_back(case, self.source(family, case.sizes), tp)

    def falls_back(self, case, source, tp):
        with tempfile.TemporaryDirectory() as parent:
            out = os.path.join(parent, "out")
            source.convert(out, "vllm", case.backend, case.layout, tp)
            flip_canary(out)
            with self.assertRaisesRegex(Refused, "Or set MXFP4_PACK_FALLBACK=unpack"):
                list(self.at_ranks(source, case, out, tp))
            with mock.patch.dict(os.environ, ON_PATH, MXFP4_PACK_FALLBACK="unpack"):
                for ours, engines in self.at_ranks(source, case, out, tp):
                    self.assertIsNotNone(ours.quant_method.packed.fallback)
                    self.compare(ours, engines, larger=False)


def index_of(pack, raw):
    """The source of each element that `pack` makes of `raw`, found by packing the digits of the elements' numbers."""
    number, where = torch.arange(raw.numel() * 2).reshape(*raw.shape[:-1], -1), 0
    for digit in range(5):
        low, high = (number >> 4 * digit & 15).unflatten(-1, (-1, 2)).unbind(-1)
        packed = pack((low | high << 4).to(torch.uint8)).contiguous().view(torch.uint8).reshape(-1)
        where = where + (formats.nibbles(packed).long() << 4 * digit)
    return where


class MarlinKernel:
    """GPT-OSS on Marlin's words, read back by the formulas."""
    is_monolithic = False
    # vLLM 0.33's
    fused_experts = SimpleNamespace(process_weights_after_loading=lambda layer: None, consumes_expert_mask=False)
    prepare_finalize = SimpleNamespace(topk_indices_dtype=lambda: torch.int32)

    def __init__(self, config):
        self.config = config

    def apply(self, hidden_states, w1, w2, topk_weights, topk_ids, **rest):
        raw = {}
        for role, codes, scales, bias in (("w13", w1, self.config.w1_scale, self.config.w1_bias),
                                          ("w2", w2, self.config.w2_scale, self.config.w2_bias)):
            experts, rows = bias.shape
            for part, t in (("codes", codes), ("scales", scales)):
                back = torch.empty((experts, t.contiguous().view(torch.uint8).numel() // experts * 2), dtype=torch.uint8)
                empty = torch.empty((1, rows, back.shape[1] // 2 // rows), dtype=torch.uint8)
                where = index_of(lambda raw: formats.marlin({("w13", part): raw})["w13", part], empty)
                back[:, where] = formats.nibbles(t.contiguous().view(torch.uint8).reshape(experts, -1))
                raw[role, part] = (back[:, 0::2] | back[:, 1::2] << 4).reshape(experts, rows, -1)
            order = formats.marlin({("w13", "bias"): torch.arange(rows)[None]})["w13", "bias"][0]
            raw[role, "bias"] = torch.empty_like(bias)
            raw[role, "bias"][:, order] = bias
        return gpt_oss_layer(raw, hidden_states, topk_ids, topk_weights)


@contextmanager
def changed_parameter(name, change):
    """In this context, layers are read with other values in a parameter."""
    read = PackedSet.read_layer

    def changed(self, entries, experts, device):
        tensors = read(self, entries, experts, device)
        key = next(key for key, entry in entries.items() if entry.parameter == name)
        change(tensors[key].view(torch.uint8))
        return tensors

    with mock.patch.object(PackedSet, "read_layer", changed):
        yield


class Kernel(unittest.TestCase):
    """The layer of `check --source`, the kernel that computes exchanged for formulas."""

    def setUp(self):
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.directory = os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), "out")
        stack.enter_context(mock.patch.dict(os.environ, ON_PATH))
        for target, name, value in (
                (vllm._custom_ops, "gptq_marlin_repack", host_kernels.vllm_marlin_repack),
                (mxfp4, "select_mxfp4_moe_backend", lambda moe: (mxfp4.Mxfp4MoeBackend.MARLIN, object)),
                (mxfp4, "make_mxfp4_moe_quant_config", lambda **given: SimpleNamespace(**given)),
                (mxfp4, "make_mxfp4_moe_kernel", lambda moe_quant_config, **given: MarlinKernel(moe_quant_config))):
            stack.enter_context(mock.patch.object(target, name, value))

    def results(self, *options):
        """The kernel's results for an output in which verify finds no fault."""
        source = os.path.join(TESTDATA, "tiny", "gpt-oss")
        subprocess.run([PROGRAM, "convert", source, self.directory, "--engine", "vllm", "--backend", "marlin", *options,
                        "-q"], check=True)
        with tempfile.TemporaryDirectory() as folder:
            saved = os.path.join(folder, "saved")
            subprocess.run([PROGRAM, "verify", self.directory, "--source", source, "--save", saved, "-q"], check=True)
            batches = kernels.read_batches(saved)
        manifest = Manifest(self.directory, "vllm")
        results = kernels.compute(manifest, manifest.sets[0], batches, torch.device("cpu"))
        self.assertTrue(results)
        return results

    def test_right_layers(self):
        for options in (["--tp-size", "2"], ["--force"]):
            self.assertLess(max(r.relative_l2 for r in self.results(*options)), 1e-6)

    def test_mistakes(self):
        for part, change in (("w13_weight", lambda t: t.copy_(t.flip(0))), ("w2_weight_scale", lambda t: t.add_(1))):
            with self.subTest(part=part), changed_parameter(part, change):
                self.assertGreater(max(r.relative_l2 for r in self.results("--force")), check.TOLERANCE)


if __name__ == "__main__":
    print(f"vLLM {VERSION}, torch {torch.__version__}, python {sys.version.split()[0]}")
    unittest.main()
