"""The vLLM loader in an installed vLLM's own classes, on a machine without a GPU: the cells of matrix.json.

    MXFP4_PACK=build/mxfp4-pack MXFP4_PACK_LIBRARY=build/libmxfp4_pack.so PYTHONPATH=src/loaders:tests/loaders \
        python3 tests/engines/vllm_classes.py

`mxfp4-pack` converts a tiny random checkpoint; one layer is read by the loader, another is filled as vLLM fills it and
converted by vLLM's own method. They must agree in every parameter (name, class, dtype, shape, strides, bytes, marks), in
the objects that the method keeps, and in the quantization config for the kernel.

Config handling, RoutedExperts, the method classes, the conversion functions, triton_kernels' layouts, FlashInfer's and
AITER's Python and replace_parameter are the installed ones. Replaced are only: the choice of backend, which needs a
GPU; queries about the platform, on ROCm also about the number of ranks; the construction of the kernel; and
- gptq_marlin_repack, a CUDA kernel, and vLLM's operators for CPUs, which its wheel lacks: compiled from their source.
  VLLM_MARLIN_SOURCE and VLLM_CPU_SOURCE name the folders csrc/.../quantization/marlin and csrc/cpu/sgl-kernels of vLLM's
  source archive. Without one, its cells are left out;
- DeepGEMM's transform of scales and FlashInfer's SM90 interleave: their own kernels, compiled for the CPU;
- the file from which FlashInfer loads its fp4 functions: FLASHINFER_FP4_HOST names a library made of FlashInfer's own
  fp4Op.cpp, whose branch for the CPU then runs. Without it, its cells are left out. Its directory C:
  g++ -std=c++17 -O1 -shared -fPIC -DENABLE_BF16 -DENABLE_FP8 -DENABLE_FP4 -I C -I C/nv_internal -I C/nv_internal/include
      -I C/../include -I TVM_FFI/include -I CUDA/include -o fp4host.so C/nv_internal/tensorrt_llm/thop/fp4Op.cpp
      C/nv_internal/cpp/common/{tllmException,stringUtils,logger,envUtils}.cpp
"""

import itertools
import json
import os
import pickle
import sys
import tempfile
import unittest
from contextlib import ExitStack
from enum import Enum
from functools import partial
from importlib import import_module, util
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import torch
import vllm
from vllm.config import set_current_vllm_config
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig, FusedMoEParallelConfig, RoutingMethodType
from vllm.model_executor.layers.fused_moe.oracle import mxfp4 as oracle
from vllm.model_executor.layers.quantization import get_quantization_config, mxfp4
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe import (
    compressed_tensors_moe_w4a4_mxfp4 as ct_moe)
from vllm.model_executor.layers.quantization.quark import quark_moe
from vllm.model_executor.layers.quantization.utils import marlin_utils, mxfp4_utils
from vllm.platforms.interface import DeviceCapability

import cells
import deepgemm_host
import host_kernels
import mxfp4_pack.vllm
import vllm_rocm
from golden import same
from mxfp4_pack.vllm import canary, quantization

mxfp4_pack.vllm.register()
get_quantization_config("mxfp4_pack")  # imports all methods, before anything is exchanged
VERSION = vllm.__version__
RELEASE = int(VERSION.split(".")[1])
OLD = RELEASE == 26
INC = "vllm.model_executor.layers.quantization.inc.schemes.inc_mxfp4_moe"  # AutoRound's
inc_moe = import_module(INC) if RELEASE >= 33 else SimpleNamespace()
FP4_HOST = os.environ.get("FLASHINFER_FP4_HOST")
MARLIN_SOURCE, CPU_SOURCE = os.environ.get("VLLM_MARLIN_SOURCE"), os.environ.get("VLLM_CPU_SOURCE")
MARLIN = "gptq_marlin_repack of its own source, compiled for the CPU"
SM90 = "FlashInfer's interleave of its own source, compiled for the CPU"
HUMMING = "humming-kernels' own kernels, compiled for the CPU"
BF16_ACTIVATIONS = {"VLLM_HUMMING_INPUT_QUANT_CONFIG": '{"dtype":"bfloat16"}'}
FI_HOST = "FlashInfer's scale interleave by its own host code"
CPU = "vLLM's operators for CPUs of their own source"
DEEPGEMM = "DeepGEMM's scale transform of its own source, compiled for the CPU"


class Case(NamedTuple):
    backend: str
    layout: str
    members: tuple  # of Mxfp4MoeBackend: for GPT-OSS, and for others; None: not converted so, or not by this vLLM
    platform: str  # of several, separated by spaces, each
    sizes: tuple = (384, 320)  # hidden, intermediate
    tp: tuple = (1, 2)
    note: str = ""
    families: tuple = ()  # others than FAMILIES


def both(member):
    return member, member


def since(release, member):
    return member if RELEASE >= release else None


SINCE = {"gpt-oss": 26, "deepseek-v4": 26, "mimo": 27, "kimi-k3": 27, "ling": 28, "deepseek-v4.1": 30}
FAMILIES = tuple(family for family, release in SINCE.items() if RELEASE >= release)
TRITON, QUARK = ("TRITON", "TRITON_UNFUSED"), ("quark",)
WITHOUT_PADS = ("compressed-tensors",) + ("auto-round",) * (RELEASE >= 33)
AND_QUARK = FAMILIES + QUARK * (RELEASE >= 32)
STRIDED = "strided" if RELEASE < 31 else "transposed"  # by triton_kernels 3.8 and triton 3.8, which PATH must have
CASES = [
    Case("triton-hopper", "file", TRITON, "hopper", tp=(1,), families=("gpt-oss", "deepseek-v4")),
    Case("triton-hopper", "a", TRITON, "hopper"), Case("triton-hopper", "c", TRITON, "hopper"),
    Case("triton-blackwell", "1", TRITON, "blackwell sm120" if RELEASE >= 32 else "blackwell"),
    Case("triton-rocm", "cdna4", TRITON, "gfx950"),
    Case("triton-rocm", STRIDED, TRITON if RELEASE < 31 else ("TRITON", None), "gfx942", tp=(1,)),
    Case("triton-rocm", STRIDED, TRITON, "gfx950", (384, 384), tp=(4,)),
    Case("triton-rocm", "transposed-128", (None, since(31, "TRITON_UNFUSED")), "gfx942"),
    Case("aiter-triton", "cdna4", both(since(30, "AITER_TRITON_MXFP4_BF16")), "gfx950", families=AND_QUARK),
    Case("aiter-triton", STRIDED, both(since(30, "AITER_TRITON_MXFP4_BF16")), "gfx942", tp=(1,)),
    Case("aiter-triton", STRIDED, (None, since(32, "AITER_TRITON_MXFP4_BF16")), "gfx942", families=QUARK),
    Case("cutlass-mxfp4", "1", (None, "CUTLASS_MXFP4_MXFP4"), "cpu", (384, 512), families=WITHOUT_PADS),
    Case("aiter-a16w4", "1", ("AITER_MXFP4_BF16", "AITER_MXFP4_BF16" if OLD else None), "gfx950", (512, 512)),
    Case("aiter-a16w4", "2", (None, since(31, "AITER_MXFP4_BF16")), "gfx950", (512, 512)),
    Case("aiter-w4a4", "1" if OLD else "2", (None, since(31, "AITER_MXFP4_MXFP4")), "gfx950", (512, 512), (1, 2), "", AND_QUARK),
    Case("aiter-w4a4", "3" if OLD else "4", ("AITER_MXFP4_MXFP4", None), "gfx950", (512, 512)),
    Case("humming", "2", both(since(32, "HUMMING")), "humming", note=HUMMING),
    Case("humming", "2", (None, since(32, "HUMMING")), "humming", families=QUARK, note=HUMMING),
    Case("humming-w4a8", "1", (None, since(33, "HUMMING")), "humming", (512, 512), note=HUMMING),
    Case("deepgemm", "1", (None, "DEEPGEMM_MXFP4"), "cpu", note=DEEPGEMM)]
if MARLIN_SOURCE:
    CASES += [
        Case("marlin", "1", both("MARLIN"), "cpu", note=MARLIN),
        Case("marlin", "file", both("MARLIN"), "cpu", tp=(1,), families=("gpt-oss", "deepseek-v4"), note=MARLIN),
        Case("marlin", "unpadded", (None, since(31, "MARLIN")), "cpu", (384, 384), families=WITHOUT_PADS,
             note=MARLIN),
        Case("marlin", "1", (None, "MARLIN"), "cpu", families=QUARK, note=MARLIN),
        Case("marlin-fp8", "1", both("MARLIN"), "sm89", note=MARLIN)]
if CPU_SOURCE:
    CASES += [
        Case("vllm-cpu", "1", ("CPU", since(31, "CPU")), "avx512", note=CPU),
        Case("vllm-cpu", "1", (None, since(31, "CPU")), "avx512", families=QUARK, note=CPU)]
if FP4_HOST:
    CUTLASS = "FLASHINFER_CUTLASS_MXFP4_BF16", since(28, "FLASHINFER_CUTLASS_MXFP4_BF16")
    CASES += [
        Case("flashinfer-cutlass", "v1" if RELEASE <= 28 else "v2", CUTLASS, "cpu", note=SM90),
        Case("flashinfer-cutlass", "file", CUTLASS, "cpu", tp=(1,), families=("gpt-oss", "deepseek-v4"), note=SM90),
        Case("flashinfer-trtllm", "i256" if OLD else "i128", both("FLASHINFER_TRTLLM_MXFP4_BF16"), "cpu", note=FI_HOST),
        Case("flashinfer-cutlass-mxfp8", "1",
             ("FLASHINFER_CUTLASS_MXFP4_MXFP8", since(31, "FLASHINFER_CUTLASS_MXFP4_MXFP8")), "cpu", note=FI_HOST)]
REFUSED = {("aiter-a16w4", "kimi-k3"), ("triton-rocm", "kimi-k3"), ("aiter-triton", "kimi-k3"),  # SiTU's shuffle is another
           ("humming-w4a8", "mimo"), ("humming-w4a8", "kimi-k3"), ("humming-w4a8", "ling")}

def activation_of(source):
    if source.pairs:
        return MoEActivation.SWIGLUOAI
    return MoEActivation.SITU if source.family == "kimi-k3" else MoEActivation.SILU


class Platform:
    """The installed platform, with a faked identity."""

    def __init__(self, **answers):
        self.answers = answers

    def __getattr__(self, name):
        if name in self.answers:
            return lambda *args, **given: self.answers[name]
        return getattr(vllm.platforms.current_platform, name)


def runner_of(case):
    """The choice is exchanged."""
    return "triton" if case.backend.startswith("triton") else "auto"


MAJOR = {"hopper": 9, "blackwell": 10, "sm120": 12}  # where triton_kernels asks for the capability
HOPPER = Platform(is_device_capability_family=True, get_device_capability=DeviceCapability(9, 0))


class Layers(cells.WithSources):
    runner_of = staticmethod(runner_of)

    """Makes a layer by the loader and by the engine itself, and compares them."""

    def exchange(self, target, name, value, create=False):
        self.stack.enter_context(mock.patch.object(target, name, value, create=create))

    def exchange_platform(self, platform, tp=1):
        if platform in MAJOR:
            from vllm.utils.import_utils import import_triton_kernels
            import_triton_kernels()
            from triton_kernels.tensor_details import layout
            major = MAJOR[platform]
            self.exchange(layout, "cuda_capability_geq", lambda m, minor=0: major >= m)
            self.exchange(mxfp4_utils, "current_platform", SimpleNamespace(
                is_cuda=lambda: True, is_rocm=lambda: False, is_device_capability=lambda c: c == 10 * major,
                is_device_capability_family=lambda f: f == 10 * major))
        if platform == "sm89":
            self.exchange(marlin_utils, "current_platform", Platform(is_device_capability=True))
            self.stack.enter_context(mock.patch.dict(os.environ, VLLM_MARLIN_INPUT_DTYPE="fp8"))
        if platform == "humming":
            import humming_golden
            humming_golden.exchange_humming(self.exchange)
            from vllm.model_executor.layers.quantization.utils.humming import schema
            for module in (oracle, schema):
                self.exchange(module, "current_platform", HOPPER)
        if platform == "avx512":
            host_kernels.load_vllm_cpu_ops()
        if platform in vllm_rocm.CDNA:
            vllm_rocm.exchange_rocm(self.exchange, self.stack, platform, tp, Platform(is_rocm=True))

    def exchange_kernels(self, case, family):
        import vllm._custom_ops
        from vllm.utils import deep_gemm
        self.exchange(vllm._custom_ops, "gptq_marlin_repack", host_kernels.vllm_marlin_repack)
        transform = partial(deepgemm_host.transform, host_kernels.folder_of("vllm.third_party.deep_gemm"))
        self.exchange(deep_gemm, "_transform_sf_into_required_layout_impl", transform)
        self.exchange(deep_gemm, "is_deep_gemm_e8m0_used", lambda: True)
        if FP4_HOST:
            host_kernels.exchange_flashinfer(self.exchange)
        if case.backend == "humming" and family.startswith("deepseek-v4"):  # as the manifest requires
            self.stack.enter_context(mock.patch.dict(os.environ, BF16_ACTIVATIONS))

    def as_on_a_gpu(self, case, family):
        self.exchange_platform(case.platform.split()[0])
        self.exchange_kernels(case, family)
        self.exchange_choice(case, family == "gpt-oss")

    def exchange_choice(self, case, pairs):
        """No kernel is made: none of these has a conversion of its own."""
        backend = getattr(mxfp4.Mxfp4MoeBackend, case.members[not pairs], None)  # 0.26.0 has no name for CUTLASS's
        for name in ("select_mxfp4_moe_backend", "select_deepseek_v4_mxfp4_moe_backend"):
            for module in (mxfp4, ct_moe, quark_moe):
                self.exchange(module, name, lambda *args, **given: (backend, None), create=True)
        for module in (ct_moe, quark_moe, inc_moe):
            self.exchange(module, "make_mxfp4_moe_kernel", lambda **given: mock.Mock(), create=True)
        self.exchange(ct_moe.CutlassExpertsMxfp4, "_supports_current_device", lambda: case.backend == "cutlass-mxfp4")

    def layer(self, quant_config, source, number, experts, tp, rank):
        parallel = FusedMoEParallelConfig(tp_size=tp, pcp_size=1, dp_size=1, ep_size=1, tp_rank=rank, pcp_rank=0, dp_rank=0,
                                          ep_rank=0, sp_size=1, use_ep=False, all2all_backend="naive", enable_eplb=False)
        moe = FusedMoEConfig(num_experts=experts, experts_per_token=2, hidden_dim=source.hidden_of_experts,
                             intermediate_size=source.intermediate, num_local_experts=experts,
                             num_logical_experts=experts,
                             activation=activation_of(source), device="cpu",
                             routing_method=RoutingMethodType.Renormalize, moe_parallel_config=parallel,
                             in_dtype=torch.bfloat16, has_bias=source.pairs)
        expert_map = SimpleNamespace(local_num_experts=experts, placement_strategy="linear", expert_map=None,
                                     expert_mask=None, routing_tables=None)
        return RoutedExperts(layer_name=f"model.layers.{number}.mlp.experts", params_dtype=torch.bfloat16, moe_config=moe,
                             quant_config=quant_config, expert_map_manager=expert_map,
                             swiglu_limit=None if source.pairs else source.config.get("swiglu_limit"))

    def configs(self, directory):
        """The loader's config object, and the engine's of the checkpoint."""
        with open(os.path.join(directory, "config.json")) as file:
            config = json.load(file)
        quantization_config = (config.get("text_config") or config).get("quantization_config", config.get("quantization_config"))
        source = quantization_config["source_quantization_config"]
        if source["quant_method"] == "fp8":
            source.setdefault("activation_scheme", "dynamic")  # of the linear layers; vLLM asks for it, synth has none
        if source["quant_method"] == "quark":
            source.update(layer_quant_config={}, layer_type_quant_config={})  # published ones have them
        cls = get_quantization_config("mxfp4_pack")
        hf_config = SimpleNamespace(model_type=config["model_type"])
        self.assertEqual(cls.override_quantization_method(quantization_config, None, hf_config=hf_config), "mxfp4_pack")
        packed = cls.from_config(quantization_config)
        packed.maybe_update_config(directory, hf_config=hf_config)
        configs = pickle.loads(pickle.dumps(packed)), packed.base.from_config(source)
        if "routed_experts_quant_method" in source:  # Ling's model then tells its config that experts are MXFP4
            from vllm.model_executor.models import bailing_moe_v3
            for made, given in zip(configs, (quantization_config, source)):
                bailing_moe_v3._configure_ling_fp8_quant_config(made, SimpleNamespace(quantization_config=given))
        return configs

    def both_layers(self, case, source, tp, rank, directory):
        self.exchange_choice(case, source.pairs)
        number, share = source.rank(tp, rank)
        experts = share["w13", "codes"].shape[0]
        packed, raw = self.configs(directory)
        with set_current_vllm_config(canary.bare_config(torch.device("cpu"))), torch.device("cpu"):
            ours = self.layer(packed, source, number, experts, tp, rank)
            engines = self.layer(raw, source, number, experts, tp, rank)
            self.assertTrue(all(p.is_meta for p in ours.parameters()))
            weight = raw_parameter(engines, ("w13", "codes"))
            sizes = weight.shape[2] * 2, weight.shape[1] // 2
            for key, tensor in cells.padded(share, source.pairs, *sizes).items():
                raw_parameter(engines, key).data.copy_(tensor)
            for layer in (engines, ours):
                layer.quant_method.process_weights_after_loading(layer)
        alone = case.layout != "file" and (case.backend != "cutlass-mxfp4" or RELEASE >= 32)  # a set that can be asked of
        if ours.quant_method.packed.fallback is None and alone:
            canary.compare(ours.quant_method.packed, source.model_type, torch.device("cpu"))  # as mxfp4_pack.check does
        return ours, engines

    def compare(self, ours, engines, larger):
        names = [name for name, _ in engines.named_parameters()]
        self.assertEqual(names, [name for name, _ in ours.named_parameters()])
        for name in names:
            got, want = getattr(ours, name), getattr(engines, name)
            same(self, got.data, want.data, name)
            marks = ({k: v for k, v in vars(p).items() if type(v) in (bool, int, str) and k != "quant_method"}
                     for p in (got, want))
            self.assertEqual(*marks, name)
        for name in ("w13_weight", "w2_weight"):
            if name not in names:
                self.same_object(getattr(ours, name), getattr(engines, name), larger)
        for name in ("w13_precision_config", "w2_precision_config"):
            got, want = (getattr(layer.quant_method, name, None) for layer in (ours, engines))
            self.assertEqual(got is None, want is None)
            if want is not None:
                self.same_object(scale_of(got), scale_of(want), larger)
        for name in ("humming_configs", "weight_schemas", "input_schemas"):
            self.assertEqual(getattr(ours, name, None), getattr(engines, name, None), name)
        self.same_config(ours.quant_method.moe_quant_config, engines.quant_method.moe_quant_config)

    def same_object(self, got, want, larger):
        data, wanted = got.storage.data, want.storage.data
        if larger:
            data = data[tuple(slice(n) for n in wanted.shape)]
            self.assertTrue(torch.equal(data, wanted))
        else:
            same(self, data, wanted, "storage")
        self.assertEqual((got.shape, got.dtype, got.shape_max, type(got.storage.layout)),
                         (want.shape, want.dtype, want.shape_max, type(want.storage.layout)))
        self.assertEqual(vars(got.storage.layout), vars(want.storage.layout))

    def same_config(self, got, want):
        """The description that the kernel gets: tensors are the layers' own, compared above."""
        self.assertEqual(type(got), type(want))
        self.assertEqual(repr_without_tensors(got), repr_without_tensors(want))

    def at_ranks(self, source, case, out, tp, ranks=None):
        """(the loader's layer, the engine's layer) of each rank, or of the given ranks"""
        for platform, rank in itertools.product(case.platform.split(), ranks or range(tp)):
            quantization.canaries_passed.clear()
            with ExitStack() as self.stack:
                self.exchange_platform(platform, tp)
                self.exchange_kernels(case, source.family)
                yield self.both_layers(case, source, tp, rank, out)


def scale_of(precision_config):
    """triton_kernels 3.8 has another name for it, for which vLLM has a function then."""
    return getattr(mxfp4_utils, "weight_mx_scale", lambda config: config.weight_scale)(precision_config)


def raw_parameter(layer, key):
    """As the checkpoint's own loader finds it."""
    name = quantization.KEYWORD[key]
    return getattr(layer, name, None) if hasattr(layer, name) else getattr(layer, name + "_packed")


def can_run(case, family):
    return (case.backend, family) not in REFUSED and case.members[family != "gpt-oss"]


def learnable(families):
    """(case, family) in which all that moves bytes is the libraries' own, on any number of ranks, and nothing is rewritten."""
    return [(case, family) for case in CASES for family in case.families or FAMILIES
            if family in families and cells.is_asked(case)
            and (not case.backend.startswith("aiter-") or util.find_spec("aiter"))
            and can_run(case, family) and case.layout not in ("c", "file")
            and case.backend not in ("humming-w4a8", "marlin-fp8", "triton-rocm", "aiter-triton")]


class Cells(Layers):
    def show(self, case, family, tp):
        source = self.source(family, case.sizes)
        with tempfile.TemporaryDirectory() as parent:
            out = os.path.join(parent, "out")
            if case.layout == "file":
                self.convert_learned(source, "vllm", case, out)
            else:
                source.convert(out, "vllm", case.backend, case.layout, tp)
            for ours, engines in self.at_ranks(source, case, out, tp):
                self.compare(ours, engines, case.layout == "c")

    def test_cells(self):
        for case in filter(cells.is_asked, CASES):
            for family in case.families or FAMILIES:
                for tp in case.tp if can_run(case, family) else ():
                    with self.subTest(backend=case.backend, layout=case.layout, family=family, tp=tp):
                        self.show(case, family, tp)
                        self.record(case, family, tp)

    def record(self, case, family, tp):
        how = case.note or "its own classes and functions, without a GPU"
        how += {"c": "; storage is larger than the engine's", "file": cells.BY_FILE}.get(case.layout, "")
        cells.shown("vllm", VERSION, (case.backend, case.layout, family), tp, "real classes",
                    how + " (vllm_classes.py)")


def repr_without_tensors(config):
    if isinstance(config, torch.Tensor):
        return str((config.dtype, config.shape))
    if isinstance(config, Enum):
        return str(config)
    if hasattr(config, "__dict__"):
        return {name: repr_without_tensors(value) for name, value in vars(config).items()}
    return repr(config) if type(config) in (int, float, str, bool, type(None)) else type(config).__name__


if __name__ == "__main__":
    print(f"vLLM {VERSION}, torch {torch.__version__}, python {sys.version.split()[0]}")
    unittest.main()
