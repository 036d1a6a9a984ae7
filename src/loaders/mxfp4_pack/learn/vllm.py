"""Runs the installed vLLM's conversion of a layer from whole checkpoint tensors: its weight loaders, its method, and
the last steps of the kernel's class. No process group is started; the layer's configuration gives the rank."""

from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from unittest import mock

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig, FusedMoEParallelConfig, RoutingMethodType
from vllm.model_executor.models import gpt_oss
from vllm.platforms import current_platform

from ..vllm.canary import bare_config
from ..vllm.quantization import engine_config
from . import held, model

LIBRARIES = ("vllm", "flashinfer-python", "humming-kernels", "amd-aiter", "triton")
PREFIX = "layers.0.mlp.experts."
ACTIVATIONS = {"silu": MoEActivation.SILU, "situ": getattr(MoEActivation, "SITU", None)}
PARAMETERS = {"codes": "weight", "scales": "weight_scale", "bias": "bias"}


class Conversion:
    def __init__(self, of, moe_backend, tp_size, rank):
        self.of, self.moe_backend, self.tp_size, self.rank = of, moe_backend, tp_size, rank
        self.whole = model.Whole(of, tp_size, rank)
        self.device = torch.device(current_platform.device_type or "cpu")
        self.config = bare_config(self.device)

    def __call__(self, tensors):
        whole = self.whole(tensors)
        experts = len(whole["w2", "codes"])
        with set_current_vllm_config(self.config), self.device, self.groups():
            layer = self.layer(experts)
            if self.of.is_gpt_oss:
                self.load_gpt_oss(layer, whole)
            else:
                for expert, shard, part, tensor in model.of_experts(whole):
                    name = f"{'w2' if shard == 'w2' else 'w13'}_{PARAMETERS[part]}"
                    parameter = getattr(layer, name)
                    parameter.weight_loader(parameter, tensor, PREFIX + name, shard_id=shard, expert_id=expert)
            layer.quant_method.process_weights_after_loading(layer)
        return held.tensors_of(layer, layer.quant_method)

    def layer(self, experts):
        of = self.of
        parallel = FusedMoEParallelConfig(
            tp_size=self.tp_size, tp_rank=self.rank, pcp_size=1, dp_size=1, ep_size=1, pcp_rank=0, dp_rank=0, ep_rank=0,
            sp_size=1, use_ep=False, all2all_backend="naive", enable_eplb=False)
        limit = of.config.get("swiglu_limit") if not of.is_gpt_oss else None
        known = {"swiglu_limit": limit} if "swiglu_limit" in FusedMoEConfig.__dataclass_fields__ else {}
        config = FusedMoEConfig(
            num_experts=experts, experts_per_token=2, hidden_dim=of.hidden, intermediate_size=of.intermediate,
            num_local_experts=experts, num_logical_experts=experts, device=self.device, in_dtype=torch.bfloat16,
            activation=MoEActivation.SWIGLUOAI if of.is_gpt_oss else ACTIVATIONS[of.activation],
            routing_method=RoutingMethodType.Renormalize, moe_parallel_config=parallel, has_bias=of.is_gpt_oss,
            moe_backend=self.moe_backend, **known)
        placement = SimpleNamespace(local_num_experts=experts, placement_strategy="linear", expert_map=None, expert_mask=None,
                                    routing_tables=None, num_fused_shared_experts=0, map_global_to_local=lambda expert: expert)
        quantization = {"activation_scheme": "dynamic"} | of.quantization
        return RoutedExperts(
            layer_name=PREFIX[:-1], params_dtype=torch.bfloat16, moe_config=config, expert_map_manager=placement,
            quant_config=engine_config(quantization, of.model_type).from_config(quantization), swiglu_limit=limit)

    def load_gpt_oss(self, layer, whole):
        """Loads with the model's own function, in a model of this one layer."""
        made = object.__new__(gpt_oss.GptOssModel)
        torch.nn.Module.__init__(made)
        made.config = SimpleNamespace(intermediate_size=self.of.intermediate, num_local_experts=len(whole["w2", "codes"]),
                                      num_attention_heads=self.tp_size, quantization_config={"quant_method": "mxfp4"})
        made.parallel_config = SimpleNamespace(enable_expert_parallel=False)
        block = torch.nn.Module()
        block.mlp = torch.nn.Module()
        block.mlp.experts = layer
        made.layers = torch.nn.ModuleList([block])
        mapper = gpt_oss.GptOssForCausalLM.hf_to_vllm_mapper
        made.load_weights(mapper.apply(model.gpt_oss_checkpoint(whole, PREFIX)))

    @contextmanager
    def groups(self):
        """Replaces vLLM's process groups by their sizes and ranks."""
        alone = SimpleNamespace(world_size=1, rank_in_group=0)
        tp = SimpleNamespace(world_size=self.tp_size, rank_in_group=self.rank)
        with ExitStack() as stack:
            for name in ("_TP", "_DP", "_EP", "_PCP", "_PP"):
                stack.enter_context(mock.patch.object(parallel_state, name, tp if name == "_TP" else alone))
            yield
