"""The vLLM loader in an installed vLLM's own classes, on a machine without a GPU.

Exchanged are only: the choice of backend (it asks for a GPU), gptq_marlin_repack (a CUDA kernel; by formulas here) and
the construction of the kernel. Config handling, RoutedExperts, the method classes, the conversion functions,
triton_kernels' layouts and replace_parameter are the installed ones.

    PYTHONPATH=src/loaders:tests/loaders python3 tests/engines/vllm_classes.py
"""

import json
import os
import pickle
import subprocess
import sys
import tempfile
import unittest
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

import torch
import vllm
from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig, FusedMoEParallelConfig, RoutingMethodType
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.quantization import get_quantization_config, mxfp4
from vllm.model_executor.layers.quantization.utils import marlin_utils_fp4, mxfp4_utils

import formats
import mxfp4_pack.vllm
from golden import TESTDATA, golden_layer, same
from moe import gpt_oss_layer
from mxfp4_pack import Manifest, PackedSet, Refused, check, kernels
from mxfp4_pack.vllm import canary, quantization
from packed_dir import Checkpoint, flip_canary
from raw_layers import gpt_oss_layers, tensors_of

mxfp4_pack.vllm.register()


def marlin_repack(b_q_weight, perm=None, size_k=None, size_n=None, num_bits=4, is_a_8bit=False):
    """[K/8, N] int32 -> [K/16, 2N] int32"""
    codes = b_q_weight.T.contiguous().view(torch.uint8)[None]
    return formats.marlin({("w13", "codes"): codes})["w13", "codes"][0]


def index_of(pack, raw):
    """Where each element of what `pack` makes of `raw` comes from: it packs the digits of the elements' numbers."""
    number, where = torch.arange(raw.numel() * 2).reshape(*raw.shape[:-1], -1), 0
    for digit in range(5):
        low, high = (number >> 4 * digit & 15).unflatten(-1, (-1, 2)).unbind(-1)
        packed = pack((low | high << 4).to(torch.uint8)).contiguous().view(torch.uint8).reshape(-1)
        where = where + (formats.nibbles(packed).long() << 4 * digit)
    return where


class MarlinKernel:
    """GPT-OSS on Marlin's words, read back by the formulas."""
    is_monolithic = False
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
    """Layers that are read meanwhile hold something else in a parameter."""
    read = PackedSet.read_layer

    def changed(self, entries, experts, device):
        tensors = read(self, entries, experts, device)
        key = next(key for key, entry in entries.items() if entry.parameter == name)
        change(tensors[key].view(torch.uint8))
        return tensors

    with mock.patch.object(PackedSet, "read_layer", changed):
        yield


class Classes(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = os.path.join(temporary.name, "out")
        quantization.canaries_passed.clear()

    def exchange(self, target, name, value):
        patch = mock.patch.object(target, name, value)
        patch.start()
        self.addCleanup(patch.stop)

    def layer(self, quant_config, checkpoint, prefix, raw):
        parallel = FusedMoEParallelConfig(tp_size=1, pcp_size=1, dp_size=1, ep_size=1, tp_rank=0, pcp_rank=0,
                                          dp_rank=0, ep_rank=0, sp_size=1, use_ep=False, all2all_backend="naive",
                                          enable_eplb=False)
        gpt_oss = checkpoint.model_type == "gpt_oss"
        experts = raw["w13", "codes"].shape[0]
        moe = FusedMoEConfig(num_experts=experts, experts_per_token=2, hidden_dim=checkpoint.hidden,
                             intermediate_size=checkpoint.intermediate, num_local_experts=experts,
                             num_logical_experts=experts,
                             activation=MoEActivation.SWIGLUOAI if gpt_oss else MoEActivation.SILU, device="cpu",
                             routing_method=RoutingMethodType.Renormalize, moe_parallel_config=parallel,
                             in_dtype=torch.bfloat16, has_bias=gpt_oss)
        expert_map = SimpleNamespace(local_num_experts=experts, placement_strategy="linear", expert_map=None,
                                     expert_mask=None, routing_tables=None)
        return RoutedExperts(layer_name=prefix, params_dtype=torch.bfloat16, moe_config=moe, quant_config=quant_config,
                             expert_map_manager=expert_map, swiglu_limit=None if gpt_oss else checkpoint.swiglu_limit)

    def serve(self, checkpoint, prefix, backend):
        self.exchange(mxfp4, "select_mxfp4_moe_backend", lambda moe: (backend, None))
        self.exchange(mxfp4, "select_deepseek_v4_mxfp4_moe_backend", lambda moe: (backend, None))
        self.exchange(mxfp4, "make_mxfp4_moe_quant_config", lambda **given: SimpleNamespace(**given))
        self.exchange(vllm._custom_ops, "gptq_marlin_repack", marlin_repack)
        if not os.path.isdir(self.directory):
            checkpoint.write(self.directory)
        with open(os.path.join(self.directory, "config.json")) as file:
            cfg = json.load(file)["quantization_config"]
        if checkpoint.model_type == "deepseek_v4":
            cfg["source_quantization_config"]["activation_scheme"] = "dynamic"
            cfg["source_quantization_config"]["weight_block_size"] = [128, 128]
        cls = get_quantization_config("mxfp4_pack")
        self.assertEqual(cls.override_quantization_method(cfg, None, hf_config=None), "mxfp4_pack")
        config = cls.from_config(cfg)
        self.assertGreaterEqual(config.get_min_capability(), 75)
        self.assertIn(torch.bfloat16, config.get_supported_act_dtypes())
        config.maybe_update_config(self.directory, hf_config=SimpleNamespace())
        config = pickle.loads(pickle.dumps(config))
        vllm_config = VllmConfig(device_config=DeviceConfig(device="cpu"))
        with set_current_vllm_config(vllm_config), torch.device("cpu"):
            layer = self.layer(config, checkpoint, prefix, checkpoint.layers["model", 0])
            raw = self.layer(type(config).__mro__[2].from_config(cfg["source_quantization_config"]), checkpoint, prefix,
                             checkpoint.layers["model", 0])
        self.assertTrue(all(p.is_meta for p in layer.parameters()))
        self.assertFalse(any(p.is_meta for p in raw.parameters()))
        scale_pad = formats.PADDING["vllm", checkpoint.backend][2]
        padded = formats.pad(checkpoint.layers["model", 0], checkpoint.pairs, *checkpoint.padded, scale_pad)
        for key, t in padded.items():
            getattr(raw, quantization.KEYWORD[key]).data.copy_(t)
        for l in (layer, raw):
            l.quant_method.process_weights_after_loading(l)
        if layer.quant_method.packed.fallback is None:
            canary.compare(layer.quant_method.packed, checkpoint.model_type, torch.device("cpu"))  # as mxfp4_pack.check does
        return layer, raw

    def all_same(self, layer, raw):
        names = [n for n, _ in raw.named_parameters()]
        self.assertEqual(names, [n for n, _ in layer.named_parameters()])
        for name in names:
            same(self, getattr(layer, name).data, getattr(raw, name).data, name)
        for name in vars(raw.quant_method.moe_quant_config):
            self.assertTrue(hasattr(layer.quant_method.moe_quant_config, name))

    def checkpoints(self, backend):
        for family, model_type, prefix in (("gpt_oss", "gpt_oss", "model.layers.0.mlp.experts"),
                                           ("deepseek", "deepseek_v4", "model.layers.0.ffn.experts")):
            raw, _ = golden_layer(family)
            h, i = raw["w13", "codes"].shape[2] * 2, raw["w2", "codes"].shape[2] * 2
            yield Checkpoint("vllm", backend, model_type, h, i, {("model", 0): raw}), prefix

    def test_marlin(self):
        for number, (checkpoint, prefix) in enumerate(self.checkpoints("marlin")):
            with self.subTest(model=checkpoint.model_type):
                self.directory += str(number)
                layer, raw = self.serve(checkpoint, prefix, mxfp4.Mxfp4MoeBackend.MARLIN)
                self.assertEqual(layer.w13_weight.dtype, torch.int32)
                self.all_same(layer, raw)

    def test_triton(self):
        from vllm.utils.import_utils import import_triton_kernels
        import_triton_kernels()
        from triton_kernels.tensor_details import layout
        self.exchange(layout, "cuda_capability_geq", lambda major, minor=0: major <= 9)
        self.exchange(mxfp4_utils, "current_platform", SimpleNamespace(
            is_cuda=lambda: True, is_rocm=lambda: False, is_device_capability=lambda c: c == 90,
            is_device_capability_family=lambda f: False))
        backends = (mxfp4.Mxfp4MoeBackend.TRITON, mxfp4.Mxfp4MoeBackend.TRITON_UNFUSED)
        for number, ((checkpoint, prefix), backend) in enumerate(zip(self.checkpoints("triton-hopper"), backends)):
            with self.subTest(model=checkpoint.model_type):
                self.directory += str(number)
                layer, raw = self.serve(checkpoint, prefix, backend)
                self.all_same(layer, raw)
                for name in ("w13_weight", "w2_weight"):
                    self.same_object(getattr(layer, name), getattr(raw, name), name)
                for name in ("w13_precision_config", "w2_precision_config"):
                    self.same_object(getattr(layer.quant_method, name).weight_scale,
                                     getattr(raw.quant_method, name).weight_scale, name)

    def test_fallback(self):
        """The canary differs: vLLM converts the raw experts itself. MXFP4_PACK names the program."""
        program = os.environ["MXFP4_PACK"]
        environment = {"MXFP4_PACK_FALLBACK": "unpack", "PATH": f"{os.path.dirname(program)}:{os.environ['PATH']}"}
        source = self.directory + "-source"
        subprocess.run([program, "synth", "gpt-oss-20b", source, "--tiny", "-q"], check=True)
        subprocess.run([program, "convert", source, self.directory, "--engine", "vllm", "--backend", "marlin", "-q"], check=True)
        with open(os.path.join(source, "config.json")) as file:
            config = json.load(file)
        checkpoint = Checkpoint("vllm", "marlin", "gpt_oss", config["hidden_size"], config["intermediate_size"],
                                gpt_oss_layers(tensors_of(source), config))
        flip_canary(self.directory)
        with self.assertRaisesRegex(Refused, "Or set MXFP4_PACK_FALLBACK=unpack"):
            self.serve(checkpoint, "model.layers.0.mlp.experts", mxfp4.Mxfp4MoeBackend.MARLIN)
        with mock.patch.dict(os.environ, environment):
            layer, raw = self.serve(checkpoint, "model.layers.0.mlp.experts", mxfp4.Mxfp4MoeBackend.MARLIN)
        self.assertIsNotNone(layer.quant_method.packed.fallback)
        self.all_same(layer, raw)

    def test_kernel(self):
        """The layer of `check --source` in vLLM's classes, the CUDA kernel exchanged for formulas."""
        program, source = os.environ["MXFP4_PACK"], os.path.join(TESTDATA, "tiny", "gpt-oss")
        self.exchange(vllm._custom_ops, "gptq_marlin_repack", marlin_repack)
        self.exchange(mxfp4, "select_mxfp4_moe_backend", lambda moe: (mxfp4.Mxfp4MoeBackend.MARLIN, object))
        self.exchange(mxfp4, "make_mxfp4_moe_quant_config", lambda **given: SimpleNamespace(**given))
        self.exchange(mxfp4, "make_mxfp4_moe_kernel", lambda moe_quant_config, **given: MarlinKernel(moe_quant_config))
        with mock.patch.dict(os.environ, PATH=f"{os.path.dirname(program)}:{os.environ['PATH']}"):
            for options in (["--tp-size", "2"], ["--force"]):
                subprocess.run([program, "convert", source, self.directory, "--engine", "vllm", "--backend", "marlin",
                                *options, "-q"], check=True)
                batches, found = kernels.expected(self.directory, source)
                manifest = Manifest(self.directory, "vllm")
                results = kernels.compute(manifest, manifest.sets[0], batches, torch.device("cpu"))
                self.assertEqual((found, len(results)), ([], 4))
                self.assertLess(max(r.relative_l2 for r in results), 1e-6)
        for name, change in (("swapped experts", lambda t: t.copy_(t.flip(0))), ("scale", lambda t: t.add_(1))):
            with self.subTest(mistake=name):
                part = "w13_weight" if name == "swapped experts" else "w2_weight_scale"
                with changed_parameter(part, change):
                    results = kernels.compute(manifest, manifest.sets[0], batches, torch.device("cpu"))
                self.assertGreater(max(r.relative_l2 for r in results), check.TOLERANCE)

    def same_object(self, got, want, what):
        same(self, got.storage.data, want.storage.data, what)
        self.assertEqual((got.shape, got.dtype, got.shape_max), (want.shape, want.dtype, want.shape_max), what)
        self.assertEqual(type(got.storage.layout), type(want.storage.layout), what)
        self.assertEqual({k: v for k, v in vars(got.storage.layout).items()}, vars(want.storage.layout), what)


if __name__ == "__main__":
    print(f"vLLM {vllm.__version__}, torch {torch.__version__}, python {sys.version.split()[0]}")
    unittest.main()
