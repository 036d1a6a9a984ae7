"""Expert-parallel load balancing: SGLang keeps copies of some experts, and moves rows of a layer's parameters between
ranks. A packed expert is such a row, so its bytes are correct at any place."""

from functools import partial

from mxfp4_pack import Refused
from mxfp4_pack.packed_set import expert_rows

from .conversion import packed_of


def logical_experts(layer, total):
    """The checkpoint's number of the expert in each of this rank's rows, according to SGLang's current map."""
    from sglang.srt.eplb.expert_location import get_global_expert_location_metadata

    placed = get_global_expert_location_metadata()
    if layer.num_experts != total and (placed is None or placed.num_physical_experts != layer.num_experts
                                       or placed.num_logical_experts != total):
        raise Refused(f"{layer.layer_name} has {layer.num_experts} experts (fused shared ones?), packed are {total}")
    first = layer.moe_ep_rank * layer.num_local_experts
    rows = range(first, first + layer.num_local_experts)
    if placed is None or layer.layer_id >= len(placed.physical_to_logical_map_cpu):  # the layer of a draft model
        return [row % total for row in rows]
    return placed.physical_to_logical_map_cpu[layer.layer_id, rows.start:rows.stop].tolist()


def move_bytes(model):
    """Makes SGLang move rows of bytes instead of its parameters."""
    for module in model.modules():
        packed = packed_of(getattr(module, "experts", None))
        if packed is not None and packed.held and hasattr(module, "get_moe_weights"):
            module.get_moe_weights = partial(expert_rows, packed.held, len(packed.experts))
