"""Humming, which gives a layer new parameters itself. The hook replaces the library's transformation of a role by
packed tensors."""

from contextlib import contextmanager

from torch.nn import Parameter


@contextmanager
def giving(tensors, names):
    """In this context SGLang's conversion of a layer's meta parameters gives the layer `tensors`, {(role, part):
    tensor}, under the names of the engine's parameters. The library makes the other values that SGLang keeps, from the
    layer's sizes."""
    from humming.layer import HummingMethod

    def transform_humming_layer(layer, sublayer_name):
        for key, tensor in tensors.items():
            if key[0] == sublayer_name:
                setattr(layer, names[key], Parameter(tensor, requires_grad=False))

    HummingMethod.transform_humming_layer = staticmethod(transform_humming_layer)  # overrides the base class's method
    try:
        yield
    finally:
        del HummingMethod.transform_humming_layer
