"""--cpu-offload-gb: SGLang keeps some parameters in the host's memory and copies them for each forward pass.

SGLang moves unpacked parameters while it builds a model, moves them to the GPU for their conversion, and then moves the
tensors of the same names back. Unpacked parameters of packed layers have no memory to move. Their names are kept, and
the packed tensors of these names are moved.
"""

import torch
from torch.nn import Parameter

from .conversion import packed_of


def is_on():
    """Whether offloading is on. If so, layers are read one at a time, because they do not all fit on the GPU."""
    from sglang.srt.utils import offloader
    return isinstance(offloader.get_offloader(), offloader.OffloaderV1)


def around(original, offloader, module):
    """SGLang's OffloaderV1 moves a layer's parameters up to its limit of bytes. Parameters without memory are hidden
    from OffloaderV1, which would otherwise wrap a layer's forward without need. They are chosen afterwards, up to the
    same limit."""
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
    """Moves the tensors that replaced the chosen parameters to the host's memory."""
    packed = packed_of(layer)
    for name in [name for name in layer._parameters if name in packed.to_host]:
        packed.held = None  # the layer no longer uses the tensors on the GPU
        layer.register_parameter(name, Parameter(on_host(layer._parameters[name].data), requires_grad=False))


def on_host(data):
    pinned = torch.empty_strided(data.size(), data.stride(), dtype=data.dtype, device="cpu", pin_memory=data.is_cuda)
    return pinned.copy_(data)
