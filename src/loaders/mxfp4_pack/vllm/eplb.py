"""Expert-parallel load balancing: vLLM keeps copies of some experts, and moves rows of a layer's parameters between
ranks. A packed expert is such a row, so its bytes are correct at any place."""

from mxfp4_pack import Refused
from mxfp4_pack.packed_set import expert_rows


def check(method):
    """Refuses a method for which vLLM does not support load balancing."""
    if not method.supports_eplb:
        raise Refused(f"vLLM's {type(method).__name__} does not support --enable-eplb. Leave it out")


def move_bytes(layer, held):
    """Makes vLLM move rows of bytes instead of its parameters."""
    layer.get_expert_weights = lambda: expert_rows(held, layer.local_num_experts)


def logical_experts(layer, total):
    """For each of the engine's experts, the number of the checkpoint's expert. Redundant experts follow after all
    others."""
    if layer.global_num_experts == total:
        return list(range(total))
    if not layer.moe_config.moe_parallel_config.enable_eplb or layer.global_num_experts < total:
        raise Refused(f"the engine asks for {layer.global_num_experts} experts, packed are {total}")
    from vllm.distributed.eplb.eplb_state import EplbState
    return list(EplbState.build_initial_global_physical_to_logical_map(total, layer.global_num_experts - total))


def refuse_moved(layer, what):
    if getattr(layer.moe_config.moe_parallel_config, "enable_eplb", False):
        raise Refused(f"{what}: with --enable-eplb experts may have moved after loading. Restart the server")
