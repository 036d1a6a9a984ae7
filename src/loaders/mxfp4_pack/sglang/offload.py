"""--cpu-offload-gb: SGLang keeps some parameters in the host's memory and copies them for each forward pass.

It moves raw parameters as it builds a model, takes them to the GPU for their conversion, and moves what then has their names
back. Raw parameters of packed layers have no memory to move: their names are kept, and what is read in their place is moved.
"""

import torch
from torch.nn import Parameter

from .conversion import packed_of


def is_on():
    """Then layers are read one after the other, since not all have room on the GPU."""
    from sglang.srt.utils import offloader
    return isinstance(offloader.get_offloader(), offloader.OffloaderV1)


def around(original, offloader, module):
    """SGLang's OffloaderV1 moves a layer's parameters until as many bytes are moved as it may. Those without memory come
    last: where it moves none, it does not wrap the layer's forward either."""
    without = [(owner, name, parameter) for owner in module.modules() if packed_of(owner) is not None
               for name, parameter in owner._parameters.items() if parameter is not None and parameter.is_meta]
    for owner, name, _ in without:
        del owner._parameters[name]
    try:
        result = original(offloader, module)
    finally:
        for owner, name, parameter in without:
            owner._parameters[name] = parameter
    for owner, name, parameter in without:
        if offloader._cpu_offload_bytes < offloader._cpu_offload_max_bytes:
            packed_of(owner).to_host.add(name)
            offloader._cpu_offload_bytes += parameter.nbytes
    return result


def to_host(layer):
    """What took the place of the parameters that SGLang would have moved."""
    packed = packed_of(layer)
    for name in [name for name in layer._parameters if name in packed.to_host]:
        packed.held = None  # the tensors on the GPU are not those of the layer any more
        layer.register_parameter(name, Parameter(on_host(layer._parameters[name].data), requires_grad=False))


def on_host(data):
    pinned = torch.empty_strided(data.size(), data.stride(), dtype=data.dtype, device="cpu", pin_memory=data.is_cuda)
    return pinned.copy_(data)
