"""The SGLang loader in an installed SGLang's own classes, on a machine without a GPU: the cells of matrix.json.

    MXFP4_PACK=build/mxfp4-pack MXFP4_PACK_LIBRARY=build/libmxfp4_pack.so FLASHINFER_FP4_HOST=fp4host.so \
        PYTHONPATH=src/loaders:tests/loaders python3 tests/engines/sglang_classes.py

`mxfp4-pack` converts a tiny random checkpoint; one layer is read by the loader, another is filled as SGLang's own
weight loader fills it and converted by SGLang's own method. They must agree in every parameter, buffer and mark. The
hook registry, get_config, the method classes and their conversions, triton_kernels' layouts and FlashInfer's Python are
the installed ones, SGLang 0.5.17 to 0.5.23. CUDA kernels that move bytes (gptq_marlin_repack, FlashInfer's interleave)
are compiled for the CPU from the packages' own sources: host_kernels.py; FLASHINFER_FP4_HOST is as in vllm_classes.py.
So is DeepGEMM's transform of scales (deepgemm_host.py); without the package deep_gemm on the path its cells are left
out. AITER_SOURCE names the folder aiter of AITER's package, whose shuffles use torch; without it AITER's cells are left
out. Replaced are queries about the GPU and the server's settings, and the FusedMoE module around the method classes
(Kimi-K3's experts are loaded by its own functions). Also replaced: Fp8MoEMethod's creation of parameters of FP4
experts, which has the same shapes.

triton_kernels has to be that of the sglang-kernel that the release asks for, with a Triton that it runs with: their layouts
differ.
"""

import importlib
import os
import sys
import tempfile
import unittest
from contextlib import ExitStack
from functools import partial
from importlib import util
from types import ModuleType, SimpleNamespace
from typing import NamedTuple
from unittest import mock

import sglang
import torch
from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE
from sglang.srt.layers.moe.utils import MoeRunnerBackend
from sglang.srt.layers.quantization import fp8, marlin_utils_fp4, mxfp4
from sglang.srt.layers.quantization import mxfp4_flashinfer_cutlass_moe as v4_cutlass
from sglang.srt.layers.quantization import mxfp4_flashinfer_trtllm_moe as v4_trtllm
from sglang.srt.layers.quantization import mxfp4_marlin_moe as v4_marlin
from sglang.srt.plugins.hook_registry import HookRegistry
from sglang.srt.utils.hf_transformers import config as hf_config

import cells
import deepgemm_host
import host_kernels
import mxfp4_pack.sglang
from golden import same
from mxfp4_pack.sglang import arguments, canary, conversion, hooks

try:
    from sglang.srt.layers.quantization import mxfp4_humming_moe as v4_humming
except ImportError:  # before 0.5.19
    v4_humming = None
import flashinfer  # noqa: E402
import flashinfer.fused_moe  # noqa: E402
from triton_kernels.tensor_details import layout  # noqa: E402

mxfp4_pack.sglang.register()
HookRegistry.apply_hooks()
VERSION = sglang.__version__
RELEASE = int(sglang.__version__.split(".")[2])
GPT_OSS, V4, FP8, K3 = ("gpt-oss",), ("deepseek-v4",), ("deepseek-v4", "deepseek-v4.1", "ling"), ("kimi-k3",)
RUNNERS = {"marlin": MoeRunnerBackend.MARLIN, "flashinfer": MoeRunnerBackend.FLASHINFER_MXFP4,
           "triton": MoeRunnerBackend.TRITON_KERNELS, "humming": MoeRunnerBackend.HUMMING,
           "deepgemm": MoeRunnerBackend.DEEP_GEMM, "aiter": MoeRunnerBackend.AITER}
DEEP_GEMM = util.find_spec("deep_gemm")
NO_ZERO_SCALES = ("deepgemm",)  # its kernel traps where an F32 has a mantissa, as torch gives 2^-127 (byte 0) one
AITER = ("shuffle_weight_a16w4", "shuffle_scale_a16w4")  # of its Python


class Case(NamedTuple):
    backend: str
    layout: str
    families: tuple
    sm: int
    releases: tuple = (17, 23)
    sizes: tuple = (384, 320)  # hidden, intermediate
    tp: tuple = (1, 2)


EVEN, WHOLE_HIDDEN = (512, 512), (512, 320)
CASES = [
    Case("marlin", "file", GPT_OSS, 90, tp=(1,)), Case("marlin", "file", V4, 90, (17, 23), WHOLE_HIDDEN, (1,)),
    Case("triton-hopper", "file", GPT_OSS, 90, tp=(1,)),
    Case("flashinfer-cutlass", "file", GPT_OSS, 90, tp=(1,)), Case("flashinfer-cutlass", "file", V4, 90, (23, 23), EVEN, (1,)),
    Case("marlin", "1", GPT_OSS, 90), Case("marlin", "1", FP8, 90, (17, 21)), Case("marlin", "i64", FP8, 90, (22, 23), WHOLE_HIDDEN),
    Case("marlin", "i64-corner", FP8, 90, (22, 23)),
    Case("triton-hopper", "b64-pairs", GPT_OSS, 90, (17, 18)), Case("triton-hopper", "b64", GPT_OSS, 90, (17, 21)),
    Case("triton-hopper", "c64", GPT_OSS, 90, (19, 23)), Case("triton-hopper", "c", GPT_OSS, 90, (18, 23), EVEN),
    Case("triton-blackwell", "1", GPT_OSS, 100, (17, 23), EVEN),  # from 0.5.18 on pads are left unset
    Case("flashinfer-cutlass", "v1-corner", GPT_OSS, 90, (17, 18)), Case("flashinfer-cutlass", "v2-corner", GPT_OSS, 90, (19, 23)),
    # Where hidden is padded too, w2's scales differ: see src/backends/flashinfer_cutlass.cpp.
    Case("flashinfer-cutlass", "v1", GPT_OSS, 90, (17, 18), WHOLE_HIDDEN),
    Case("flashinfer-cutlass", "v2", GPT_OSS, 90, (19, 23), WHOLE_HIDDEN),
    Case("flashinfer-cutlass", "v1", FP8, 90, (17, 18), EVEN), Case("flashinfer-cutlass", "v2", FP8, 90, (19, 23), EVEN),
    Case("flashinfer-humming", "1", FP8, 90, (19, 23), EVEN), Case("flashinfer-humming", "1", GPT_OSS, 90, (19, 23)),
    Case("flashinfer-cutlass-mxfp8", "3", GPT_OSS, 120), Case("flashinfer-cutlass-mxfp8", "2", GPT_OSS, 120, (17, 23), WHOLE_HIDDEN),
    Case("flashinfer-cutlass-mxfp8", "1", FP8, 120, (17, 23), EVEN),
    Case("flashinfer-trtllm", "i128-ones", GPT_OSS, 100), Case("flashinfer-trtllm", "i128", GPT_OSS, 100, (17, 23), EVEN),
    Case("flashinfer-trtllm", "i128", FP8, 100, (17, 23), EVEN),
    Case("flashinfer-trtllm", "i128-ones", FP8, 100, (21, 23)),
    Case("humming", "1", FP8, 90, (19, 23), EVEN),
    Case("deepgemm", "1", K3, 100, (22, 23), EVEN), Case("aiter-a16w4", "1", K3, 950, (22, 23), EVEN),
    Case("aiter-a16w4", "1-ones", GPT_OSS, 950), Case("aiter-a16w4", "1", GPT_OSS, 950, (17, 23), EVEN),
    # K3's pads of scales are 1.0, from 0.5.23 on 0.
    Case("marlin", "1", K3, 90, (22, 22), WHOLE_HIDDEN), Case("marlin", "k3", K3, 90, (23, 23), WHOLE_HIDDEN),
    Case("flashinfer-trtllm", "i128-ones", K3, 100, (22, 22), WHOLE_HIDDEN),
    Case("flashinfer-trtllm", "i128-k3", K3, 100, (23, 23), WHOLE_HIDDEN),
    Case("aiter-a16w4", "1-ones", K3, 950, (22, 22), WHOLE_HIDDEN), Case("aiter-a16w4", "1-k3", K3, 950, (23, 23), WHOLE_HIDDEN),
]


def can_run(case, family):
    found = {"aiter-a16w4": "AITER_SOURCE" in os.environ, "deepgemm": DEEP_GEMM is not None}.get(case.backend, True)
    return found and (family not in ("deepseek-v4.1", "ling") or RELEASE >= 21) and case.releases[0] <= RELEASE <= case.releases[1]


def runner_of(case):
    return RUNNERS[case.backend.partition("-")[0]].value


def learnable(families):
    """(case, family) for which mxfp4_pack.learn can run SGLang. triton-blackwell gives no file to compare with, and
    flashinfer-humming rewrites codes. SGLang's weight loader raises an error for marlin i64-corner. Version 1 of
    aiter-a16w4 and version c of triton-hopper are SGLang's only for sizes without pads."""
    return [(case, family) for case in CASES for family in case.families
            if family in families and can_run(case, family) and not is_larger(case)
            and case.backend not in ("triton-blackwell", "flashinfer-humming")
            and case.layout not in ("i64-corner", "file")
            and (case.backend, case.layout) not in (("aiter-a16w4", "1"), ("triton-hopper", "c")) and cells.is_asked(case)]


class Layers(cells.WithSources):
    runner_of = staticmethod(runner_of)

    """Makes a layer by the loader and by the engine itself, and compares them."""

    def exchange(self, target, name, value):
        self.stack.enter_context(mock.patch.object(target, name, value, create=True))

    def exchange_platform(self, case):
        sm = case.sm
        platform = SimpleNamespace(is_sm90=sm == 90, is_sm100=sm == 100, is_sm120=sm == 120, is_cuda=True, is_hip=False,
                                   is_npu=False, device_capability=divmod(sm, 10))
        precision = "fp8" if case.backend == "flashinfer-humming" else "bf16"
        execution = SimpleNamespace(moe=SimpleNamespace(flashinfer_mxfp4_moe_precision=precision))
        for module in (fp8, mxfp4, v4_marlin, v4_cutlass, v4_trtllm):
            self.exchange(module, "get_platform", lambda: platform)
            self.exchange(module, "get_exec", lambda: execution)
            self.exchange(module, "is_flashinfer_available", lambda: True)
            for other in (90, 100, 120):
                self.exchange(module, f"is_sm{other}_supported", lambda *args, other=other: sm == other)
        self.exchange(layout, "cuda_capability_geq", lambda major, minor=0: sm >= 10 * major + minor)
        self.exchange(mxfp4, "_use_aiter", case.backend.startswith("aiter"))
        self.exchange(mxfp4, "_is_hip", case.backend.startswith("aiter"))
        self.exchange(torch.cuda, "empty_cache", lambda: None)
        self.exchange(torch.Tensor, "cuda", lambda tensor: tensor)

    def exchange_kernels(self):
        host_kernels.exchange_flashinfer(self.exchange)
        from flashinfer import fp4_quantization
        for module in (mxfp4, v4_trtllm):  # what they import where there is a GPU
            for name in ("interleave_moe_weights_for_sm90_mixed_gemm", "interleave_moe_scales_for_sm90_mixed_gemm"):
                self.exchange(module, name, getattr(flashinfer.fused_moe, name))
            for name in ("get_w2_permute_indices_with_cache", "_maybe_get_cached_w3_w1_permute_indices"):
                self.exchange(module, name, getattr(flashinfer.fused_moe.core, name))
            for name in ("nvfp4_block_scale_interleave", "block_scale_interleave"):
                self.exchange(module, name, getattr(fp4_quantization, name))
        self.exchange(mxfp4, "_FI_HAS_SM90_CUTLASS_MXFP4", True)
        self.exchange(mxfp4, "has_triton_kernels", True)
        self.exchange(marlin_utils_fp4, "gptq_marlin_repack", host_kernels.sglang_marlin_repack)
        self.exchange(marlin_utils_fp4, "marlin_make_workspace", lambda device, n: torch.zeros(n, dtype=torch.int32))

    def exchange_humming(self):
        import humming_golden
        from sglang.srt.layers.quantization import humming_utils
        humming_golden.exchange_humming(self.exchange)
        self.exchange(humming_utils, "get_moe_a2a_backend", lambda: SimpleNamespace(is_deepep=lambda: False))

    def as_on_a_gpu(self, case, family):
        self.exchange_platform(case)
        self.exchange_kernels()
        if case.backend == "humming":
            self.exchange_humming()
        if case.backend == "deepgemm":
            transform = partial(deepgemm_host.transform, DEEP_GEMM.submodule_search_locations[0])
            module = SimpleNamespace(transform_sf_into_required_layout=transform)
            self.stack.enter_context(mock.patch.dict(sys.modules, deep_gemm=module))
        if case.backend.startswith("aiter"):
            for name in AITER:
                self.exchange(mxfp4, name, getattr(host_kernels.aiter_shuffles(), name))

    def start(self, directory):
        """The state that the launcher's process leaves for processes that load the model."""
        self.stack.enter_context(mock.patch.dict(os.environ, {arguments.CHECKED: os.path.realpath(directory)}))
        return hf_config.get_config(directory, trust_remote_code=False)

    def method(self, case, family):
        prefix, runner = "model.layers.0.mlp.experts", RUNNERS[case.backend.partition("-")[0]]
        if family in GPT_OSS + K3:
            with mock.patch.object(mxfp4, "get_moe_runner_backend", lambda: runner):
                return mxfp4.Mxfp4MoEMethod(prefix=prefix)
        fp8 = SimpleNamespace(process_weights_after_loading=lambda layer: None, create_weights=fp8_create_weights)
        make = {"marlin": v4_marlin.Mxfp4MarlinMoEMethod, "flashinfer-trtllm": v4_trtllm.Mxfp4FlashinferTrtllmMoEMethod,
                "humming": v4_humming and v4_humming.Mxfp4HummingMoEMethod}
        return make.get(case.backend, v4_cutlass.Mxfp4FlashinferCutlassMoEMethod)(fp8, prefix)

    def layer(self, case, source, share, tp, rank, number):
        """As FusedMoE.__init__ goes about it."""
        experts, gpt_oss = share["w13", "codes"].shape[0], source.pairs
        hidden, intermediate = source.hidden_of_experts, share["w2", "codes"].shape[2] * 2
        layer = torch.nn.Module()
        layer.layer_name, layer.layer_id = f"model.layers.{number}.mlp.experts", number
        layer.num_experts = layer.num_local_experts = experts
        layer.moe_tp_size, layer.moe_tp_rank, layer.moe_ep_rank = tp, rank, 0
        if gpt_oss and case.backend.startswith("flashinfer"):
            layer.hidden_size_unpadded, hidden = hidden, -(-hidden // 256) * 256
        layer.hidden_size, layer.intermediate_size_per_partition = hidden, intermediate
        layer.with_bias, layer.params_dtype = gpt_oss, torch.bfloat16
        layer.moe_runner_config = SimpleNamespace(
            gemm1_alpha=1.702 if gpt_oss else None, gemm1_clamp_limit=7.0 if gpt_oss else None, gate_up_interleaved=gpt_oss,
            swiglu_limit=None if gpt_oss else source.config.get("swiglu_limit"), activation="situ" if source.family in K3 else "silu", is_gated=True,
            apply_router_weight_on_input=False, layer=None)
        layer.quant_method = method = self.method(case, source.family)
        method.create_weights(layer=layer, num_experts=experts, hidden_size=hidden,
                              intermediate_size_per_partition=intermediate, params_dtype=torch.bfloat16,
                              weight_loader=None, with_bias=gpt_oss, moe_intermediate_size=intermediate)
        runner = RUNNERS[case.backend.partition("-")[0]]
        with mock.patch("sglang.srt.layers.moe.moe_runner.MoeRunner", lambda backend, config: SimpleNamespace(config=config)), \
                mock.patch("sglang.srt.layers.moe.moe_runner.runner.MoeRunner", lambda backend, config: None), \
                mock.patch.object(mxfp4, "MoeRunner", lambda backend, config: None), \
                mock.patch.object(mxfp4, "replace", lambda config, **changes: config, create=True), \
                mock.patch.object(mxfp4, "get_moe_runner_backend", lambda: runner), \
                mock.patch.dict(sys.modules, {"sglang.srt.layers.moe.moe_runner.flashinfer_cutlass": ModuleType("x")}):
            method.create_moe_runner(layer, layer.moe_runner_config)
        return layer

    def both_layers(self, case, source, tp, rank, directory):
        number, share = source.rank(tp, rank)
        config = self.start(directory)
        self.assertEqual(hooks.manifest.source_quantization, quantization_of(config))
        ours = self.layer(case, source, share, tp, rank, number)
        self.assertTrue(all(p.is_meta for p in ours.parameters()))
        engines = self.engines_layer(case, source, tp, rank)
        ours.quant_method.process_weights_after_loading(ours)
        self.assertTrue(ours.mxfp4_pack.done)
        if ours.mxfp4_pack.set.fallback is None and case.layout != "file":
            canary.compare(ours.mxfp4_pack.set, source.model_type, torch.device("cpu"))  # as mxfp4_pack.check does it
        return ours, engines

    def engines_layer(self, case, source, tp, rank):
        number, share = source.rank(tp, rank)
        with mock.patch.object(hooks, "manifest", None):
            layer = self.layer(case, source, share, tp, rank, number)
        load_by_engine(layer, share) if source.family in K3 else load(layer, share, source.pairs)
        layer.quant_method.process_weights_after_loading(layer)
        return layer

    def at_ranks(self, source, case, out, tp, ranks=None):
        """(the loader's layer, the engine's) of each rank, or of these"""
        hooks.manifest = None
        for rank in ranks or range(tp):
            with ExitStack() as self.stack:
                self.as_on_a_gpu(case, source.family)
                yield self.both_layers(case, source, tp, rank, out)

    def compare(self, ours, engines, case):
        triton = case.backend.startswith("triton") and ours.mxfp4_pack.set.fallback is None
        left = {n for n, _ in engines.named_parameters()} - {n for n, _ in ours.named_parameters()}
        # the engine keeps Triton's raw scales without a use
        self.assertEqual(left, {"w13_weight_scale", "w2_weight_scale"} if triton else set())
        for held in ("named_parameters", "named_buffers"):
            for name, got in getattr(ours, held)():
                same(self, got.data, getattr(engines, name).data, name)
                self.assertEqual(getattr(got, "is_shuffled", None), getattr(getattr(engines, name), "is_shuffled", None))
        self.assertEqual([n for n, _ in engines.named_buffers()], [n for n, _ in ours.named_buffers()])
        self.assertEqual(plain(ours), plain(engines))
        for name in ("humming_metas", "weight_schemas", "input_schemas"):
            self.assertEqual(getattr(ours, name, None), getattr(engines, name, None), name)
        for name, want in vars(engines.quant_method).items():
            if isinstance(want, torch.Tensor):
                same(self, getattr(ours.quant_method, name), want, name)
        if triton:
            self.compare_triton(ours.quant_method, engines.quant_method, is_larger(case))

    def compare_triton(self, ours, engines, larger):
        for role in ("w13", "w2"):
            for of in (lambda m: getattr(m, role + "_weight_triton_tensor"),
                       lambda m: conversion.scale_of(getattr(m, role + "_precision_config"))):
                got, want = of(ours), of(engines)
                data, wanted = got.storage.data, want.storage.data
                if larger:
                    data = data[tuple(slice(n) for n in wanted.shape)].clone()
                    self.assertTrue(torch.equal(data, wanted), role)
                else:
                    same(self, data, wanted, role)
                self.assertEqual((got.shape, got.shape_max, vars(got.storage.layout)),
                                 (want.shape, want.shape_max, vars(want.storage.layout)))


def is_larger(case):
    """Whether storage is padded more than this release's."""
    return RELEASE < {"b64": 19, "c": 22, "c64": 22}.get(case.layout, 0)


def plain(layer):
    """A layer's marks: attributes that are no tensors and no objects."""
    return {name: value for name, value in vars(layer).items() if type(value) in (bool, int, str, type(None))}


def quantization_of(config):
    return getattr(config, "quantization_config", None) or config.text_config.quantization_config


def fp8_create_weights(layer, e, h, i, dtype, fp4_scale_dtype=torch.float32, **extra):
    """What Fp8MoEMethod makes for FP4 experts."""
    for role, rows, k in (("w13", 2 * i, h), ("w2", h, i)):
        for name, columns, kind in (("weight", k // 2, torch.int8), ("weight_scale_inv", k // 32, fp4_scale_dtype)):
            t = torch.empty((e, rows, columns), dtype=kind)
            layer.register_parameter(f"{role}_{name}", torch.nn.Parameter(t, requires_grad=False))


def load_by_engine(layer, share):
    """Expert after expert by FusedMoE's own functions, which fill the pads too; share: a rank's."""
    rank = SimpleNamespace(moe_runner_config=layer.moe_runner_config, quant_method=layer.quant_method, quant_config=None,
                           use_padded_loading=False, use_presharded_weights=False, use_triton_kernels=False,
                           moe_tp_size=1, moe_tp_rank=0)
    for (role, part), t in share.items():
        data = getattr(layer, f"{role}_weight" if part == "codes" else f"{role}_weight_scale").data.view(t.dtype)
        for expert, matrix in enumerate(t):
            if role == "w2":
                FusedMoE._load_w2(rank, data[expert], 1, "w2", matrix)
            else:
                for shard, half in zip(("w1", "w3"), matrix.chunk(2)):
                    FusedMoE._load_w13(rank, data[expert], 0, shard, half)


def load(layer, share, pairs):
    """What SGLang's own weight loader does: rows in pairs to the beginning, halves each to the beginning of a half."""
    for (role, part), t in share.items():
        names = {"codes": ["weight"], "scales": ["weight_scale", "weight_scale_inv"], "bias": ["weight_bias"]}[part]
        data = next(getattr(layer, f"{role}_{n}") for n in names if hasattr(layer, f"{role}_{n}")).data
        if part == "codes":
            data.zero_()  # torch.empty in some classes
        if data.dtype == torch.float32:
            t = t.view(torch.float8_e8m0fnu).float()
        halves = 2 if role == "w13" and not pairs else 1
        places = data.view(t.dtype).chunk(halves, dim=1)
        if getattr(layer.quant_method, "load_up_proj_weight_first", False):
            places = places[::-1]
        for rows, place in zip(t.chunk(halves, dim=1), places):
            place[tuple(slice(n) for n in rows.shape)] = rows


class Cells(Layers):
    def test_cells(self):
        for case in filter(cells.is_asked, CASES):
            for family in case.families:
                for tp in case.tp if can_run(case, family) else ():
                    with self.subTest(backend=case.backend, layout=case.layout, family=family, tp=tp):
                        self.show(case, family, tp)
                        self.record(case, family, tp)

    def show(self, case, family, tp):
        source = self.source(family, case.sizes, zero_scales=case.backend not in NO_ZERO_SCALES)
        with tempfile.TemporaryDirectory() as parent:
            out = os.path.join(parent, "out")
            if case.layout == "file":
                hooks.manifest = None
                self.convert_learned(source, "sglang", case, out)
            else:
                source.convert(out, "sglang", case.backend, case.layout, tp)
            for ours, engines in self.at_ranks(source, case, out, tp):
                self.compare(ours, engines, case)

    def record(self, case, family, tp):
        how = {"marlin": "gptq_marlin_repack of its own source, compiled for the CPU",
               "humming": "humming-kernels' own kernels, compiled for the CPU",
               "deepgemm": "DeepGEMM's scale transform of its own source, compiled for the CPU"}.get(
                   case.backend, "its own classes and functions, without a GPU")
        if case.backend.startswith("flashinfer"):
            how = f"functions of FlashInfer {flashinfer.__version__}'s own source, compiled for the CPU"
        if is_larger(case):
            how += "; storage is larger than the engine's"
        if case.layout == "file":
            how += cells.BY_FILE
        cells.shown("sglang", VERSION, (case.backend, case.layout, family), tp, "real classes",
                    how + " (sglang_classes.py)")


if __name__ == "__main__":
    print(f"SGLang {sglang.__version__}, torch {torch.__version__}, python {sys.version.split()[0]}")
    unittest.main()
