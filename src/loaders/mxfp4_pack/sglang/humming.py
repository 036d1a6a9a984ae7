"""Humming, which gives a layer new parameters itself: where its library would transform a role's, they are read."""

from contextlib import contextmanager

from torch.nn import Parameter


@contextmanager
def giving(tensors, names):
    """Meanwhile SGLang's conversion of a layer's meta parameters gives it `tensors`, {(role, part): tensor}, under the
    names of the engine's parameters. What SGLang keeps beside them is made by the library, of the layer's sizes."""
    from humming.layer import HummingMethod

    def transform_humming_layer(layer, sublayer_name):
        for key, tensor in tensors.items():
            if key[0] == sublayer_name:
                setattr(layer, names[key], Parameter(tensor, requires_grad=False))

    HummingMethod.transform_humming_layer = staticmethod(transform_humming_layer)  # before that of its base
    try:
        yield
    finally:
        del HummingMethod.transform_humming_layer
