"""--enable-memory-saver: released weights lose their bytes unless SGLang keeps a copy (--enable-weights-cpu-backup),
and are loaded again. This module keeps the values from SGLang's conversion, which are not in a file."""

import torch

from .conversion import packed_of


def after_export(state, model):
    """Called when SGLang saves the buffers of a model before it releases the weights."""
    state[__name__] = [(tensor, tensor.to("cpu", copy=True)) for module in model.modules() for tensor in made_beside(module)]


def after_import(_, model, state):
    """Called when SGLang has memory for the weights again."""
    with torch.inference_mode():  # tensors made in this mode can only be changed in it
        for tensor, kept in state[__name__]:
            tensor.copy_(kept)


def made_beside(layer):
    """Tensors of a packed layer and its method that are not in the set's files."""
    packed = packed_of(layer)
    if packed is None or not packed.held:
        return []
    read = {tensor.data_ptr() for tensor in packed.held.values()}
    all_ = [*layer._parameters.values(), *vars(layer).values(), *vars(layer.quant_method).values()]
    return [t for t in all_ if isinstance(t, torch.Tensor) and not t.is_meta and t.data_ptr() not in read]
