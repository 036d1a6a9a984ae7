"""MXFP4_PACK_KERNEL=1: this package's MoE kernels compute packed layers in the place of vLLM's.

vLLM's objects stay, and routing, preparation and the sum over ranks are vLLM's. Only `apply` of a layer's experts is
replaced. Whoever sets the variable gets these kernels or an error with the reason, never vLLM's kernel instead.
Facts about vLLM are from v0.26.0, whose whole engine ran with them.
"""

import inspect
import logging
import os
from functools import lru_cache

import torch
from mxfp4_pack import Refused
from mxfp4_pack._moe import Moe

VARIABLE = "MXFP4_PACK_KERNEL"
BACKENDS = ("marlin", "triton-hopper")
MODULAR = ("MarlinExperts", "OAITritonExperts", "UnfusedOAITritonExperts")  # routing is done before them
MONOLITHIC = ("OAITritonMxfp4ExpertsMonolithic",)  # they route
USED = {True: ("hidden_states", "router_logits", "expert_map"),
        False: ("output", "hidden_states", "topk_weights", "topk_ids", "expert_map")}
TOKENS_AT_ONCE = 4096  # more tokens of a batch are computed in equal parts, which halves the workspace of 8192
logger = logging.getLogger("vllm.mxfp4_pack")
layers = []  # of this process, by the operator's `layer`: the Moe, and the workspace, at which CUDA graphs point
workspaces = {}  # device -> the largest workspace, which layers share, because they run one after the other


def wanted():
    value = os.environ.get(VARIABLE, "0")
    if value not in ("0", "1", ""):
        raise Refused(f"{VARIABLE} is {value!r}, it can only be 0 or 1")
    return value == "1"


def refuse(why):
    raise Refused(f"{VARIABLE}=1: this package's MoE kernels cannot compute the layers: {why}. Leave {VARIABLE} out, and "
                  "vLLM's own kernel computes them")


def refuse_settings(method, vllm):
    """Refuses what the kernels do not compute, before anything is read."""
    packed, moe = method.packed, method.moe
    if packed.layout_file is not None or packed.backend not in BACKENDS:
        refuse(f"the experts are packed for {packed.kernel}, expected {' or '.join(BACKENDS)}")
    given = getattr(vllm, "offload_config", None)
    found = {
        "--load-format dummy": method.dummy,
        "--load-format ipc_cache": vllm.load_config.load_format == "ipc_cache",
        "--enable-lora": vllm.lora_config,
        "--enable-eplb": getattr(moe.moe_parallel_config, "enable_eplb", False),
        "--enable-dbo": getattr(vllm.parallel_config, "enable_dbo", False),
        "--cpu-offload-gb": getattr(getattr(given, "uva", None), "cpu_offload_gb", 0),
        "VLLM_BATCH_INVARIANT=1": os.environ.get("VLLM_BATCH_INVARIANT", "0") not in ("", "0"),
    }
    if set_ := [name for name, value in found.items() if value]:
        refuse(f"they do not support {', '.join(set_)}")
    if moe.in_dtype != torch.bfloat16:
        refuse(f"activations are {moe.in_dtype}, expected torch.bfloat16")
    if moe.activation.value != packed.activation:
        refuse(f"vLLM's activation is {moe.activation.value}, the experts were packed for {packed.activation}")


def gpu_number(device):
    if device.type != "cuda":
        refuse(f"vLLM runs on {device.type}, expected a CUDA GPU of compute capability 9.0")
    return torch.cuda.current_device() if device.index is None else device.index


def prepare(method, layer, vllm):
    """Refuses a layer that the kernels cannot compute. Returns its Moe, without tensors."""
    refuse_settings(method, vllm)
    gpu = gpu_number(torch.empty(0).device)  # the engine builds models under `with device`
    if getattr(layer, "apply_router_weight_on_input", False):
        refuse("the model applies router weights to the experts' input")
    experts = layer.moe_config.num_local_experts
    try:
        moe = Moe(method.packed, method.entries, experts, method.moe.experts_per_token, gpu,
                  getattr(layer, "swiglu_limit", None))
    except Refused as error:
        refuse(error)
    moe.tokens = min(TOKENS_AT_ONCE, vllm.scheduler_config.max_num_batched_tokens)
    return moe


def install(method, moe):
    """Replaces `apply` of the experts, which vLLM has created for a layer whose tensors were read."""
    if method.packed.fallback is not None:
        refuse(f"the experts do not fit this vLLM, which converts them itself: {method.packed.fallback}")
    if not method.held:
        refuse("vLLM does not keep the tensors that were read")
    experts = getattr(getattr(method, "moe_kernel", None), "fused_experts", None)
    name = type(experts).__name__
    monolithic = name in MONOLITHIC
    parameters = list(inspect.signature(experts.apply).parameters) if monolithic or name in MODULAR else []
    if not set(USED[monolithic]) <= set(parameters):
        refuse(f"they do not know how this vLLM calls {name}")
    moe.bind(method.held)
    device = next(iter(method.held.values())).device
    least = moe.workspace(moe.tokens)
    if device not in workspaces or len(workspaces[device]) < least:
        workspaces[device] = torch.empty(least, dtype=torch.uint8, device=device)
    number = len(layers)
    layers.append((moe, workspaces[device]))
    route = router(experts, moe) if monolithic else None
    call = operator()[1]

    def apply(*args, **given):
        given.update(zip(parameters, args))
        x = given["hidden_states"].contiguous()
        if route is None:
            weights, ids, out = given["topk_weights"], given["topk_ids"], given["output"]
        else:
            weights, ids = route(x, given["router_logits"])
            out = torch.empty_like(x)
        expert_map = given["expert_map"]
        call(x, ids.to(torch.int32).contiguous(), weights.float().contiguous(),
             None if expert_map is None else expert_map.to(torch.int32), out, number)
        return out

    experts.apply = apply
    if not number:
        logger.info("mxfp4-pack: %s=1: this package's MoE kernels replace vLLM's %s; workspace %.0f MiB for %d tokens at once",
                    VARIABLE, name, len(workspaces[device]) / 2**20, moe.tokens)
    return moe


def router(experts, moe):
    """For experts that route: vLLM's function of router logits to weights and ids."""
    try:
        from vllm.model_executor.layers.fused_moe.router.fused_topk_router import fused_topk
    except ImportError as error:
        refuse(f"this vLLM routes in another way: {error}")
    return lambda x, logits: fused_topk(x, logits, moe.layer.top_k, experts.renormalize)[:2]


@lru_cache(maxsize=None)
def operator():
    """The call as an operator of torch, whose output torch.compile and CUDA graphs know."""
    def run(x, ids, weights, expert_map, out, layer):
        moe, workspace = layers[layer]
        moe.run(x, ids, weights, expert_map, out, workspace)

    library = torch.library.Library("mxfp4_pack", "DEF")
    library.define("moe(Tensor x, Tensor ids, Tensor weights, Tensor? expert_map, Tensor(a!) out, int layer) -> ()")
    library.impl("moe", run, "CompositeExplicitAutograd")
    library.impl("moe", lambda *given: None, "Meta")
    return library, torch.ops.mxfp4_pack.moe.default
