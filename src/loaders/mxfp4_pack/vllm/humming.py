"""Humming, which gives a layer new parameters itself. Packed tensors replace the library's transformation of a role.

The library creates its description of each role, which vLLM also keeps."""

from contextlib import contextmanager

from mxfp4_pack._entries import ROLES

# Parts of a role, and the library's names for them.
NAMES = {"codes": "weight", "scales": "weight_scale", "residual": "weight_scale_2", "bias": "bias"}


@contextmanager
def giving(packed, device):
    """In this context vLLM's conversion of a layer's meta parameters gives the layer the tensors of `packed`, {(role,
    part): tensor}."""
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
