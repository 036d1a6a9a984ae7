"""Humming, which gives a layer new parameters itself: where its library would transform a role's tensors, they are read.

What vLLM keeps beside them, the library's description of each role, is made by the library itself.
"""

from contextlib import contextmanager

from mxfp4_pack._entries import ROLES

# Parts of a role, and the library's names for them.
NAMES = {"codes": "weight", "scales": "weight_scale", "residual": "weight_scale_2", "bias": "bias"}


@contextmanager
def giving(packed, device):
    """Meanwhile vLLM's conversion of a layer's meta parameters gives it the tensors of `packed`, {(role, part): tensor}."""
    import vllm.utils.humming as library
    from humming.transform import prepare_layer_config

    original = library.prepare_and_transform_humming_tensors
    roles = iter(ROLES)  # in vLLM's order

    def prepared(tensors, **given):
        role = next(roles)
        config = prepare_layer_config(**given | {"device": device})
        return config, {NAMES[part]: tensor for (of, part), tensor in packed.items() if of == role}

    library.prepare_and_transform_humming_tensors = prepared
    try:
        yield
    finally:
        library.prepare_and_transform_humming_tensors = original
