"""The SGLang loader in an installed SGLang's own classes, on a machine without a GPU.

Exchanged are only: questions about the GPU and the server's settings, gptq_marlin_repack and FlashInfer's two interleave
functions (CUDA kernels; by formulas here), and the FusedMoE module around the method classes. The hook registry,
get_config, the method classes and their conversions and triton_kernels' layouts are the installed ones.

    PYTHONPATH=src/loaders:tests/loaders python3 tests/engines/sglang_classes.py

MXFP4_PACK names the program. Run with SGLang 0.5.17 to 0.5.23. triton_kernels is what SGLang imports (its kernel package has it from
0.5.18 on), else vLLM's copy.
"""

import importlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import unittest
from types import ModuleType, SimpleNamespace
from unittest import mock

import sglang
import torch
from sglang.srt import server_args
from sglang.srt.layers.moe.utils import MoeRunnerBackend
from sglang.srt.layers.quantization import marlin_utils_fp4, mxfp4
from sglang.srt.layers.quantization import mxfp4_flashinfer_cutlass_moe as v4_cutlass
from sglang.srt.layers.quantization import mxfp4_marlin_moe as v4_marlin
from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater
from sglang.srt.plugins.hook_registry import HookRegistry
from sglang.srt.utils.hf_transformers import config as hf_config

import cells
import formats
import mxfp4_pack.sglang
from golden import golden_layer, same
from mxfp4_pack import Refused
from mxfp4_pack.sglang import arguments, canary, hooks
from packed_dir import Checkpoint, random_layer
from raw_layers import gpt_oss_layers, tensors_of

try:
    import triton_kernels
except ImportError:
    import vllm.third_party.triton_kernels as triton_kernels
    sys.modules["triton_kernels"] = triton_kernels
from triton_kernels.tensor_details import layout  # noqa: E402



def triton_kernels_of(name):
    """A module of triton_kernels; None where the version has none of that name."""
    try:
        return importlib.import_module(f"triton_kernels.{name}")
    except ImportError:
        return None


mxfp4_pack.sglang.register()
HookRegistry.apply_hooks()


def marlin_repack(b_q_weight, perm, size_k, size_n, num_bits):
    """[K/8, N] int32 -> [K/16, 2N] int32"""
    codes = b_q_weight.T.contiguous().view(torch.uint8)[None]
    return formats.marlin({("w13", "codes"): codes})["w13", "codes"][0]


def interleave_weights(weight, kind):
    return formats.flashinfer_sm90_v1({("w13", "codes"): weight})["w13", "codes"]


def interleave_scales(scale, group_size=32):
    return formats.flashinfer_sm90_v1({("w13", "scales"): scale})["w13", "scales"]


RUNNERS = {"marlin": MoeRunnerBackend.MARLIN, "flashinfer-cutlass": MoeRunnerBackend.FLASHINFER_MXFP4,
           "triton-hopper": MoeRunnerBackend.TRITON_KERNELS}


HOPPER = SimpleNamespace(is_sm90=True, is_sm100=False, is_sm120=False, is_cuda=True, is_hip=False, is_npu=False,
                         device_capability=(9, 0))


def record(backend, layout, family, how=""):
    """A cell of matrix.json; how: what was exchanged that moves bytes."""
    cells.shown("sglang", sglang.__version__, (backend, layout, family), 1, "stand-in" if how else "real classes",
                (how or "its own classes and functions, without a GPU") + " (sglang_classes.py)")


FAMILIES = {"gpt_oss": "gpt-oss", "deepseek": "deepseek-v4"}


class Classes(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = os.path.join(temporary.name, "out")
        hooks.manifest = None
        flashinfer = {"flashinfer": ModuleType("flashinfer"), "flashinfer.fused_moe": ModuleType("flashinfer.fused_moe")}
        flashinfer["flashinfer.fused_moe"].interleave_moe_weights_for_sm90_mixed_gemm = interleave_weights
        flashinfer["flashinfer.fused_moe"].interleave_moe_scales_for_sm90_mixed_gemm = interleave_scales
        patch = mock.patch.dict(sys.modules, flashinfer)
        patch.start()
        self.addCleanup(patch.stop)
        for module, name, value in (
                (mxfp4, "is_sm90_supported", lambda: True), (mxfp4, "is_sm100_supported", lambda: False),
                (mxfp4, "is_sm120_supported", lambda: False), (v4_marlin, "is_sm90_supported", lambda: True),
                (mxfp4, "get_platform", lambda: HOPPER), (v4_marlin, "get_platform", lambda: HOPPER),
                (v4_cutlass, "get_platform", lambda: HOPPER),
                (v4_cutlass, "get_exec", lambda: SimpleNamespace(moe=SimpleNamespace(flashinfer_mxfp4_moe_precision="bf16"))),
                (mxfp4, "get_exec", lambda: SimpleNamespace(moe=SimpleNamespace(flashinfer_mxfp4_moe_precision="bf16"))),
                (mxfp4, "has_triton_kernels", True), (mxfp4, "_FI_HAS_SM90_CUTLASS_MXFP4", True),
                (mxfp4, "interleave_moe_weights_for_sm90_mixed_gemm", interleave_weights),
                (mxfp4, "interleave_moe_scales_for_sm90_mixed_gemm", interleave_scales),
                (marlin_utils_fp4, "gptq_marlin_repack", marlin_repack),
                (marlin_utils_fp4, "marlin_make_workspace", lambda device, n: torch.zeros(n, dtype=torch.int32)),
                (v4_cutlass, "is_flashinfer_available", lambda: True), (v4_cutlass, "is_sm120_supported", lambda: False),
                (torch.cuda, "empty_cache", lambda: None)):
            patch = mock.patch.object(module, name, value, create=True)
            patch.start()
            self.addCleanup(patch.stop)

    def start(self, directory, **given):
        """ServerArgs as a launcher completes it, with SGLang's own resolution, which asks for a GPU, left out."""
        completed = []
        if arguments.step() == "resolve_once":
            patch = mock.patch("sglang.srt.arg_groups.pipeline.run_resolution_pipeline", completed.append)
        else:
            def leave(args):
                completed.append(args)
                args.model_path = "dummy"
            patch = mock.patch.object(server_args.ServerArgs, "_handle_return_hidden_states_mode", leave)
        with patch:
            args = server_args.ServerArgs(model_path=directory, **given)
            if arguments.step() == "resolve_once":
                args.resolve_once()
        self.assertEqual(completed, [args])
        return args

    def test_arguments(self):
        checkpoint = Checkpoint("sglang", "marlin", "gpt_oss", 320, 352, {("model", 0): random_layer(1, 2, 320, 352, True)})
        checkpoint.write(self.directory)
        args = self.start(self.directory)
        self.assertEqual(args.moe_runner_backend, "marlin")
        again = pickle.loads(pickle.dumps(args))  # it goes to the processes that load the model
        self.assertEqual(again.moe_runner_backend, "marlin")
        if arguments.step() == "resolve_once":
            again.resolve_once()
        for given, message in (({"tp_size": 2}, "rank 0 of 2"), ({"enable_eplb": True}, "--enable-eplb"),
                               ({"moe_runner_backend": "triton_kernel"}, "asked for is triton_kernel"),
                               ({"load_format": "dummy"}, "--load-format dummy")):
            with self.subTest(given=given), self.assertRaisesRegex(Refused, message):
                self.start(self.directory, **given)
        os.environ.pop(arguments.CHECKED)
        with self.assertRaisesRegex(Refused, "did not run the plugin's hook"):
            hf_config.get_config(self.directory, trust_remote_code=False)

    def test_a_model_that_is_not_packed(self):
        os.mkdir(self.directory)
        with open(os.path.join(self.directory, "config.json"), "w") as file:
            file.write('{"model_type": "gpt_oss", "quantization_config": null}')
        self.assertIn(self.start(self.directory, enable_eplb=True).moe_runner_backend, ("auto", None))
        self.assertIsNone(hooks.manifest)

    def test_updates(self):
        updater = SimpleNamespace()
        hooks.manifest = SimpleNamespace()
        done, message = WeightUpdater.update_weights_from_disk(updater, "elsewhere", "auto")
        self.assertFalse(done)
        self.assertIn("cannot be updated in a running server", message)

    def method(self, checkpoint):
        if checkpoint.model_type == "gpt_oss":
            with mock.patch.object(mxfp4, "get_moe_runner_backend", lambda: RUNNERS[checkpoint.backend]):
                return mxfp4.Mxfp4MoEMethod(prefix="model.layers.0.mlp.experts")
        fp8 = SimpleNamespace(process_weights_after_loading=lambda layer: None, create_weights=self.fp8_create_weights)
        make = {"marlin": v4_marlin.Mxfp4MarlinMoEMethod, "flashinfer-cutlass": v4_cutlass.Mxfp4FlashinferCutlassMoEMethod}
        return make[checkpoint.backend](fp8, "model.layers.0.mlp.experts")

    @staticmethod
    def fp8_create_weights(layer, e, h, i, dtype, fp4_scale_dtype=None, **extra):
        """What Fp8MoEMethod makes for FP4 experts."""
        for role, rows, k in (("w13", 2 * i, h), ("w2", h, i)):
            for name, columns, kind in (("weight", k // 2, torch.int8), ("weight_scale_inv", k // 32, fp4_scale_dtype)):
                t = torch.empty((e, rows, columns), dtype=torch.uint8).view(kind)
                layer.register_parameter(f"{role}_{name}", torch.nn.Parameter(t, requires_grad=False))

    def layer(self, checkpoint):
        """As FusedMoE.__init__ goes about it."""
        experts = checkpoint.layers["model", 0]["w13", "codes"].shape[0]
        gpt_oss = checkpoint.model_type == "gpt_oss"
        hidden = checkpoint.hidden
        if gpt_oss and checkpoint.backend == "flashinfer-cutlass":
            hidden = -(-hidden // 256) * 256
        layer = torch.nn.Module()
        layer.layer_name, layer.layer_id = "model.layers.0.mlp.experts", 0
        layer.num_experts = layer.num_local_experts = experts
        layer.moe_tp_size, layer.moe_tp_rank, layer.moe_ep_rank = 1, 0, 0
        layer.hidden_size, layer.intermediate_size_per_partition = hidden, checkpoint.intermediate
        layer.moe_runner_config = SimpleNamespace(
            gemm1_alpha=1.702 if gpt_oss else None, gemm1_clamp_limit=7.0 if gpt_oss else None,
            gate_up_interleaved=True, swiglu_limit=None if gpt_oss else 10.0, activation="silu", is_gated=True,
            apply_router_weight_on_input=False, layer=None)
        layer.quant_method = method = self.method(checkpoint)
        method.create_weights(layer=layer, num_experts=experts, hidden_size=hidden,
                              intermediate_size_per_partition=checkpoint.intermediate, params_dtype=torch.bfloat16,
                              weight_loader=None, with_bias=gpt_oss, moe_intermediate_size=checkpoint.intermediate)
        with mock.patch("sglang.srt.layers.moe.moe_runner.MoeRunner", lambda backend, config: SimpleNamespace(config=config)), \
                mock.patch("sglang.srt.layers.moe.moe_runner.runner.MoeRunner", lambda backend, config: None), \
                mock.patch.object(mxfp4, "MoeRunner", lambda backend, config: None), \
                mock.patch.object(mxfp4, "get_moe_runner_backend", lambda: RUNNERS[checkpoint.backend]), \
                mock.patch.dict(sys.modules, {"sglang.srt.layers.moe.moe_runner.flashinfer_cutlass": ModuleType("x")}):
            method.create_moe_runner(layer, layer.moe_runner_config)
        return layer

    def fill(self, layer, checkpoint):
        """What the engine's own weight loader does."""
        raw, pairs = checkpoint.layers["model", 0], checkpoint.pairs
        if getattr(layer.quant_method, "load_up_proj_weight_first", False):
            raw = formats.reorder_w13(raw, formats.swap)
        if pairs and checkpoint.backend == "flashinfer-cutlass":
            sizes = layer.w13_weight.shape[2] * 2, layer.w13_weight.shape[1] // 2
            padded = formats.pad(raw, pairs, *sizes, (0x7F, 0x7F))
        else:
            padded = formats.pad(raw, pairs, *checkpoint.padded, formats.PADDING["sglang", checkpoint.backend][2])
        for (role, part), t in padded.items():
            names = {"codes": ["weight"], "scales": ["weight_scale", "weight_scale_inv"], "bias": ["weight_bias"]}[part]
            parameter = next(getattr(layer, f"{role}_{n}") for n in names if hasattr(layer, f"{role}_{n}"))
            parameter.data.view(t.dtype).copy_(t)

    def compare(self, family, backend):
        raw, pairs = golden_layer(family)
        h, i = raw["w13", "codes"].shape[2] * 2, raw["w2", "codes"].shape[2] * 2
        checkpoint = Checkpoint("sglang", backend, "gpt_oss" if pairs else "deepseek_v4", h, i, {("model", 0): raw})
        checkpoint.write(self.directory)
        return self.compare_written(checkpoint)

    def compare_written(self, checkpoint):
        pairs, backend = checkpoint.pairs, checkpoint.backend
        engines = self.layer(checkpoint)
        self.fill(engines, checkpoint)
        engines.quant_method.process_weights_after_loading(engines)
        self.start(self.directory)
        config = hf_config.get_config(self.directory, trust_remote_code=False)
        self.assertEqual(config.quantization_config["quant_method"], "mxfp4" if pairs else "fp8")
        layer = self.layer(checkpoint)
        self.assertTrue(all(p.is_meta for p in layer.parameters()))
        layer.quant_method.process_weights_after_loading(layer)
        left = {n for n, _ in engines.named_parameters()} - {n for n, _ in layer.named_parameters()}
        # the engine keeps Triton's raw scales without a use
        self.assertEqual(left, {"w13_weight_scale", "w2_weight_scale"} if backend == "triton-hopper" else set())
        for name, got in layer.named_parameters():
            same(self, got.data, getattr(engines, name).data, name)
        for name in ("_mxfp4_backend", "_dsv4_mxfp4_backend"):
            self.assertEqual(getattr(layer, name, None), getattr(engines, name, None), name)
        self.assertEqual(layer.mxfp4_pack.done, True)
        canary.compare(layer.mxfp4_pack.set, checkpoint.model_type, torch.device("cpu"))  # as mxfp4_pack.check does it
        return layer, engines

    def test_marlin(self):
        for family in ("gpt_oss", "deepseek"):
            with self.subTest(family=family):
                hooks.manifest = None
                self.directory += family
                layer, engines = self.compare(family, "marlin")
                same(self, layer.workspace, engines.workspace, "workspace")
                record("marlin", "1", FAMILIES[family], "gptq_marlin_repack is a CUDA kernel, by a formula here")

    def test_flashinfer_cutlass(self):
        for family in ("gpt_oss", "deepseek"):
            with self.subTest(family=family):
                hooks.manifest = None
                self.directory += family
                layer, engines = self.compare(family, "flashinfer-cutlass")
                if family == "deepseek":
                    same(self, layer.quant_method._swiglu_limit_tensor, engines.quant_method._swiglu_limit_tensor, "limit")
                if sglang.__version__ in ("0.5.17", "0.5.18"):  # later ones come with a FlashInfer of the second form
                    record("flashinfer-cutlass", "v1", FAMILIES[family],
                           "FlashInfer's interleaves are CUDA kernels, by formulas of the first form here")

    def converted(self, backend, version):
        """A tiny checkpoint, converted by the program that MXFP4_PACK names: the layouts that formats.py lacks. Its
        scales need no pads, which SGLang makes of 0x7F from 0.5.19 on, and mxfp4-pack of zero."""
        source, program = self.directory + "-source", os.environ["MXFP4_PACK"]
        subprocess.run([program, "synth", "gpt-oss-20b", source, "--tiny", "--hidden", "256", "--intermediate", "256",
                        "-q"], check=True)
        subprocess.run([program, "convert", source, self.directory, "--engine", "sglang", "--backend",
                        backend, "--layout-version", version, "-q"], check=True)
        with open(os.path.join(source, "config.json")) as file:
            config = json.load(file)
        return Checkpoint("sglang", backend, "gpt_oss", config["hidden_size"], config["intermediate_size"],
                          gpt_oss_layers(tensors_of(source), config))

    def test_triton(self):
        with mock.patch.object(layout, "cuda_capability_geq", lambda major, minor=0: major <= 9):
            if hasattr(triton_kernels_of("matmul"), "PrecisionConfig"):
                layer, engines = self.compare_written(self.converted("triton-hopper", "c"))
            else:
                layer, engines = self.compare("gpt_oss", "triton-hopper")
        for role in ("w13", "w2"):
            got = getattr(layer.quant_method, role + "_weight_triton_tensor")
            want = getattr(engines.quant_method, role + "_weight_triton_tensor")
            same(self, got.storage.data, want.storage.data, role)
            self.assertEqual((got.shape, got.shape_max, vars(got.storage.layout)),
                             (want.shape, want.shape_max, vars(want.storage.layout)))
            got, want = (hooks.scale_of(getattr(m.quant_method, role + "_precision_config")) for m in (layer, engines))
            self.assertEqual((got.shape, got.shape_max), (want.shape, want.shape_max))
            corner = got.storage.data[:, :want.storage.data.shape[1], :want.storage.data.shape[2]]
            self.assertTrue(torch.equal(corner, want.storage.data))
        if hasattr(triton_kernels_of("matmul"), "PrecisionConfig"):
            record("triton-hopper", "c", "gpt-oss")


if __name__ == "__main__":
    print(f"SGLang {sglang.__version__}, torch {torch.__version__}, python {sys.version.split()[0]}")
    unittest.main()
