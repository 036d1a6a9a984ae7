"""The tensors that a layer holds for its kernel after the conversion."""

from itertools import chain

import torch

DEPTH = 4
# Triton's tensors are in objects of the method or the layer. Their names are those of the parameters in other backends.
NAMES = (("_precision_config", "_weight_scale"), ("_weight_triton_tensor", "_weight"))


def tensors_of(layer, method):
    """{name: tensor} of the parameters, buffers and attributes of the layer and the method, and of storages in their
    objects. Each memory is listed once. If several tensors have one name, the one in Triton's objects is listed."""
    attributes = list(chain(vars(method).items(), vars(layer).items()))
    triton = [(name, thing) for name, thing in attributes if name != called(name)]
    one = {called(name) for name, _ in triton}
    found, seen = {}, set()
    walk = [(called(name), thing, DEPTH)
            for name, thing in chain(triton, layer.named_parameters(), layer.named_buffers(), attributes)][::-1]
    while walk:
        name, thing, depth = walk.pop()
        if isinstance(thing, torch.Tensor):
            place = thing.device, thing.data_ptr(), thing.numel()
            if not thing.is_meta and thing.numel() and place not in seen:
                seen.add(place)
                found.setdefault(name, thing)
        elif depth and id(thing) not in seen and hasattr(thing, "__dict__"):
            seen.add(id(thing))
            walk += [(name if name in one or key in ("storage", "data") else f"{name}.{key}", value, depth - 1)
                     for key, value in vars(thing).items()]
    return found


def called(name):
    for suffix, plain in NAMES:
        name = name.replace(suffix, plain)
    return name
