"""Runs the installed SGLang's conversion of a layer from whole checkpoint tensors: its weight loaders and its method.
No server or process group is started. The layer gets its rank as an argument; all settings except the runner have a
server's defaults. For GPT-OSS, DeepSeek-V4 and Kimi-K3."""

from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from unittest import mock

import torch
from sglang.srt.layers.moe.fused_moe_triton import FusedMoE
from sglang.srt.layers.moe.utils import MoeA2ABackend, MoeRunnerBackend
from sglang.srt.layers.quantization import fp8, mxfp4
from sglang.srt.models import gpt_oss

from . import NoRearrangement, held, model

LIBRARIES = ("sglang", "sglang-kernel", "flashinfer-python", "triton")
PREFIX = "layers.0.mlp.experts"
# The parameters of models whose checkpoints have separate matrices for each expert.
PARAMETERS = {"deepseek_v4": {"codes": ("weight", torch.int8), "scales": ("weight_scale_inv", torch.float8_e8m0fnu)},
              "kimi_k3": {"codes": ("weight", torch.uint8), "scales": ("weight_scale", torch.uint8)}}


class Conversion:
    def __init__(self, of, moe_backend, tp_size, rank):
        if not of.is_gpt_oss and of.model_type not in PARAMETERS:
            raise NoRearrangement(f"a {of.model_type} model: SGLang is asked for gpt_oss, {' and '.join(PARAMETERS)} only; "
                                  "--call asks any function")
        try:
            self.runner = MoeRunnerBackend(moe_backend)
        except ValueError as e:
            raise NoRearrangement(f"--moe-backend {moe_backend}: one of "
                                  f"{', '.join(b.value for b in MoeRunnerBackend)} was expected") from e
        self.of, self.tp_size, self.rank = of, tp_size, rank
        self.whole = model.Whole(of, tp_size, rank)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def __call__(self, tensors):
        whole = self.whole(tensors)
        with self.settings(), self.device:
            layer = self.layer(len(whole["w2", "codes"]))
            load = self.load_gpt_oss if self.of.is_gpt_oss else self.load_experts
            load(layer, whole)
            layer.quant_method.process_weights_after_loading(layer)
        return held.tensors_of(layer, layer.quant_method)

    @contextmanager
    def settings(self):
        parallel = SimpleNamespace(tp_size=self.tp_size, tp_rank=self.rank, moe_tp_size=self.tp_size, moe_tp_rank=self.rank,
                                   moe_ep_size=1, moe_ep_rank=0)
        moe = SimpleNamespace(flashinfer_mxfp4_moe_precision="default")
        with ExitStack() as stack:
            for target, name, value in ((mxfp4, "get_moe_runner_backend", self.runner),
                                        (fp8, "get_moe_runner_backend", self.runner),
                                        (mxfp4, "get_moe_a2a_backend", MoeA2ABackend.NONE),
                                        (mxfp4, "get_exec", SimpleNamespace(moe=moe)),
                                        (gpt_oss, "get_parallel", parallel)):
                stack.enter_context(mock.patch.object(target, name, lambda value=value: value, create=True))
            yield

    def layer(self, experts):
        """Creates a layer as FusedMoE's constructor does."""
        of = self.of
        layer = object.__new__(FusedMoE)
        torch.nn.Module.__init__(layer)
        hidden = -(-of.hidden // 256) * 256 if of.is_gpt_oss and self.runner.is_flashinfer_mxfp4() else of.hidden
        share = of.intermediate // self.tp_size
        config = SimpleNamespace(
            gemm1_alpha=1.702 if of.is_gpt_oss else None, gemm1_clamp_limit=7.0 if of.is_gpt_oss else None,
            gate_up_interleaved=of.is_gpt_oss, swiglu_limit=None if of.is_gpt_oss else of.config.get("swiglu_limit"),
            activation=of.activation, is_gated=True, apply_router_weight_on_input=False, layer=None)
        layer.__dict__.update(
            layer_name=PREFIX, layer_id=0, num_experts=experts, num_local_experts=experts, moe_tp_size=self.tp_size,
            moe_tp_rank=self.rank, moe_ep_size=1, moe_ep_rank=0, uses_expert_location=False, num_fused_shared_experts=0,
            _has_fused_shared=False, _num_local_routed=experts, _num_global_routed=experts, _expert_storage_rank=0,
            _load_device=self.device, scheme=None, use_triton_kernels=False, use_flashinfer_trtllm_moe=False,
            use_presharded_weights=False, hidden_size_unpadded=of.hidden, hidden_size=hidden, params_dtype=torch.bfloat16,
            with_bias=of.is_gpt_oss, intermediate_size_per_partition=share, moe_runner_config=config,
            quant_config=self.quantization())
        layer.quant_method = method = layer.quant_config.get_quant_method(layer, PREFIX)
        method.moe_runner_config, method.runner = config, SimpleNamespace(config=config)
        method.create_weights(layer=layer, num_experts=experts, hidden_size=hidden, intermediate_size_per_partition=share,
                              params_dtype=torch.bfloat16, weight_loader=layer.weight_loader, with_bias=of.is_gpt_oss,
                              moe_intermediate_size=of.intermediate)
        return layer

    def quantization(self):
        if self.of.model_type != "deepseek_v4":
            return mxfp4.Mxfp4Config(is_checkpoint_mxfp4_serialized=True)
        return fp8.Fp8Config(is_checkpoint_fp8_serialized=True, activation_scheme="dynamic", weight_block_size=[128, 128],
                             is_fp4_experts=True)

    def load_experts(self, layer, whole):
        """Calls the parameters' loaders as the model's own function does."""
        for expert, shard, part, tensor in model.of_experts(whole):
            suffix, dtype = PARAMETERS[self.of.model_type][part]
            name = f"{'w2' if shard == 'w2' else 'w13'}_{suffix}"
            parameter = getattr(layer, name)
            parameter.weight_loader(parameter, tensor.view(dtype), name, shard_id=shard, expert_id=expert)

    def load_gpt_oss(self, layer, whole):
        """Loads with the model's own function, in a model of this one layer."""
        made = object.__new__(gpt_oss.GptOssForCausalLM)
        torch.nn.Module.__init__(made)
        made.config = SimpleNamespace(intermediate_size=self.of.intermediate, num_local_experts=len(whole["w2", "codes"]))
        block = torch.nn.Module()
        block.mlp = torch.nn.Module()
        block.mlp.experts = layer
        made.layers = torch.nn.ModuleList([block])
        made._load_mxfp4_experts_weights(model.gpt_oss_checkpoint(whole, PREFIX + "."))
