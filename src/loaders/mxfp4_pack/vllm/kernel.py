"""Runs a packed MoE layer on vLLM's own kernel, without a server. This plugin creates the layer as in a server."""

import inspect
from types import SimpleNamespace

import torch
from vllm.config import set_current_vllm_config
from vllm.forward_context import set_forward_context
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig, FusedMoEParallelConfig, RoutingMethodType
from vllm.v1.worker import workspace

from .canary import bare_config, tensor_parallel
from .quantization import engine_config, packed_config_class

ACTIVATIONS = {"swigluoai": MoEActivation.SWIGLUOAI, "silu": MoEActivation.SILU}  # those that `verify` computes
NOT_CHOSEN = -1e4  # logit of an expert that was not chosen


class Kernel:
    """A callable with the arguments x [tokens, hidden], and numbers and weights of the chosen experts [tokens, top_k].
    Returns the layer's result."""

    def __init__(self, manifest, packed, key, top_k, device):
        self.hidden = packed.sizes[0]
        self.vllm = bare_config(device)
        source = manifest.source_quantization
        config = packed_config_class(engine_config(source, manifest.model_type)).from_config(source)
        config.manifest = SimpleNamespace(pick=lambda *asked: packed, main_layers=manifest.main_layers)
        namespace, number = key
        name = f"model.layers.{number + (manifest.main_layers if namespace == 'mtp' else 0)}.mlp.experts"
        if device.type == "cuda" and not workspace.is_workspace_manager_initialized():
            workspace.init_workspace_manager(device)
        with set_current_vllm_config(self.vllm), tensor_parallel(packed), device:
            self.layer = routed_experts(config, name, packed, next(iter(packed.layers[key].values())).experts, top_k)
            self.method = self.layer.quant_method
            self.method.process_weights_after_loading(self.layer)

    def __call__(self, x, ids, weights):
        method, padded = self.method, self.method.packed.padded_sizes[0]
        x = torch.nn.functional.pad(x.to(torch.bfloat16), (0, padded - self.hidden))
        with set_current_vllm_config(self.vllm), set_forward_context(None, self.vllm):
            if method.is_monolithic:  # the kernel includes routing: a softmax over the chosen experts' logits
                logits = torch.full((len(x), self.layer.global_num_experts), NOT_CHOSEN, device=x.device)
                logits.scatter_(1, ids.long(), weights.log())
                out = method.apply_monolithic(layer=self.layer, x=x, router_logits=logits)
            else:
                ids = ids.to(method.topk_indices_dtype or torch.int32)
                without = {name: None for name in inspect.signature(method.apply).parameters if "shared" in name}
                out = method.apply(layer=self.layer, x=x, topk_weights=weights, topk_ids=ids, **without)
        return out[:, :self.hidden]

    def engine(self, *batch):
        """The result of vLLM's own kernel if MXFP4_PACK_KERNEL=1 has replaced it, else None."""
        if not self.method.own:
            return None
        experts = self.method.moe_kernel.fused_experts
        own = vars(experts).pop("apply")
        try:
            return self(*batch)
        finally:
            experts.apply = own


def routed_experts(config, name, packed, experts, top_k):
    """Creates the layer as FusedMoE does for one tensor-parallel rank."""
    size, rank = packed.moe_tp_size, packed.rank
    hidden, intermediate = packed.sizes
    activation = packed.activation
    if activation not in ACTIVATIONS:
        raise NotImplementedError(f"activation {activation}")
    gpt_oss = activation == "swigluoai"
    limit = None if gpt_oss else packed.swiglu_limit or None
    parallel = FusedMoEParallelConfig(tp_size=size, pcp_size=1, dp_size=1, ep_size=1, tp_rank=rank, pcp_rank=0, dp_rank=0,
                                      ep_rank=0, sp_size=1, use_ep=False, all2all_backend="naive", enable_eplb=False)
    moe = FusedMoEConfig(num_experts=experts, experts_per_token=top_k, hidden_dim=hidden,
                         intermediate_size=intermediate, num_local_experts=experts, num_logical_experts=experts,
                         activation=ACTIVATIONS[activation], device=torch.empty(0).device,
                         routing_method=RoutingMethodType.Renormalize, moe_parallel_config=parallel,
                         in_dtype=torch.bfloat16, has_bias=gpt_oss, moe_backend=packed.kernel, swiglu_limit=limit)
    experts_map = SimpleNamespace(local_num_experts=experts, placement_strategy="linear", expert_map=None, expert_mask=None,
                                  routing_tables=None)
    return RoutedExperts(layer_name=name, params_dtype=torch.bfloat16, moe_config=moe, quant_config=config,
                         expert_map_manager=experts_map, swiglu_limit=limit)
