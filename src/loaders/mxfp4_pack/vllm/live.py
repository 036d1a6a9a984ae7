"""A serving model: its weights are loaded again, or its experts are replaced by new ones.

vLLM reloads layer by layer: it replaces a layer's parameters with unpacked ones, loads, converts and copies. Packed
layers are excluded (`KeptInfo`). Files are read over the packed tensors, whose addresses must not change because of
CUDA graphs. Unpacked experts from a checkpoint or a trainer go through the model's load_weights and are packed in
place.
"""

from functools import partial, wraps

from mxfp4_pack import Manifest, Refused, is_packed, expert_update
from mxfp4_pack.expert_update import Served
from vllm.model_executor.model_loader import base_loader, utils
from vllm.model_executor.model_loader.reload.layerwise import LAYERWISE_INFO
from vllm.model_executor.model_loader.reload.types import LayerReloadingInfo

from .eplb import refuse_moved


class KeptInfo(LayerReloadingInfo):
    """Marks a layer that vLLM's reload does not change. At the end of a reload vLLM calls the layer's
    process_weights_after_loading."""

    def can_load(self):
        return True


def install():
    """Hooks every function in which vLLM builds a model or loads it from disk."""
    if not hasattr(utils.record_metadata_for_reloading, "__wrapped__"):
        utils.record_metadata_for_reloading = after(utils.record_metadata_for_reloading, adopt)
        for loader in base_loader.BaseModelLoader.__subclasses__():  # loaders that read the weights of a running model
            if "get_all_weights" in vars(loader):
                loader.get_all_weights = before_weights(loader.get_all_weights)


def after(original, then):
    @wraps(original)
    def both(model):
        original(model)
        then(model)
    return both


def before_weights(original):
    @wraps(original)
    def both(loader, model_config, model):
        read_again(model, model_config.model)
        return original(loader, model_config, model)
    return both


def packed_layers(model):
    """(layer, method) of the packed layers."""
    found = [(layer, getattr(layer, "quant_method", None)) for layer in model.modules()]
    found = [(layer, getattr(method, "old_quant_method", method)) for layer, method in found]  # with LoRA
    return [(layer, method) for layer, method in found if hasattr(method, "packed")]


def is_kept(layer, method):
    """Whether the engine still uses the tensors that were read. For Triton this is always true."""
    kept = {parameter.data_ptr() for parameter in layer.parameters()}
    return method.packed.is_triton or all(tensor.data_ptr() in kept for tensor in method.held.values())


def adopt(model):
    layers = packed_layers(model)
    if not layers:
        return
    # This is also needed for GPT-OSS's attention sinks. vLLM 0.26.0 fills these in place, after its reload has replaced
    # them with parameters without memory.
    for layer in [layer for layer, _ in layers] + [layer for layer in model.modules() if "sinks" in layer._parameters]:
        LAYERWISE_INFO[layer] = KeptInfo(({}, {}), LAYERWISE_INFO[layer].restore_device)
    model.load_weights = partial(load_weights, model, model.load_weights)


def load_weights(model, original, weights):
    """Replaces the model's load_weights: packs unpacked experts, and lets the model load all other weights."""
    layers = packed_layers(model)
    if any(method.held is None for _, method in layers):
        return original(weights)  # the first load
    return original(expert_update.others(updates_of(layers), weights, lambda: refuse_new_experts(layers)))


def updates_of(layers):
    return expert_update.updates_of([Served(method.packed, method.entries, method.held, method.experts_of(layer))
                                  for layer, method in layers])


def refuse_new_experts(layers):
    if not layers:
        raise Refused("the model has no packed experts")
    for layer, method in layers:
        refuse_unless_in_place(layer, method, "new experts")


def refuse_unless_in_place(layer, method, what):
    refuse_moved(layer, what)
    if method.packed.fallback is not None:
        raise Refused(f"{what}: this server converted the experts itself (MXFP4_PACK_FALLBACK). Convert the checkpoint "
                      "again, as the server's warning describes")
    if method.own:
        raise Refused(f"{what}: MXFP4_PACK_KERNEL=1 keeps biases and the largest scale. Restart the server")
    if layer.quant_method is not method:
        raise Refused(f"{what}: vLLM's {type(layer.quant_method).__name__}, which adds LoRA, does not support it. "
                      "Restart the server")
    if not method.held:
        raise Refused(f"{what}: vLLM's {type(method).__name__} moved its weights after they were read. "
                      "Restart the server")


def update(model, names, tensors):
    """See mxfp4_pack.update."""
    layers = packed_layers(model)
    refuse_new_experts(layers)
    expert_update.pack(updates_of(layers), names, tensors)


def read_again(model, directory):
    """Prepares to load the model from this directory, which may be new. Packed experts are read over the old
    ones; unpacked experts come through load_weights."""
    layers = [(layer, method) for layer, method in packed_layers(model) if method.held is not None]
    manifest = Manifest(directory, "vllm") if layers and is_packed(directory) else None
    sets = [the_same_set(manifest, layer, method) for layer, method in layers]
    for set_, (layer, method) in zip(sets, layers):
        if set_ is None:
            method.waits = "unpacked"
            continue
        method.waits, method.packed, method.entries = "read", set_, set_.layer(*method.place, "a reload")
        set_.expect(method.entries, method.experts_of(layer), method.device, into=method.held)


def the_same_set(manifest, layer, method):
    """The new manifest's set for a layer; None without a manifest."""
    refuse_unless_in_place(layer, method, "a reload")
    if manifest is None:
        return None
    return method.packed.again(manifest, method.place, method.entries)


def finish(layer, method, logger):
    """Finishes a packed layer at the end of a reload or an update."""
    waits, method.waits = method.waits, None
    if waits == "read":
        method.packed.read_layer(method.entries, method.experts_of(layer), method.device)
        if method.packed.finished:
            logger.info(method.packed.report())
        return
    names = [entry.name for entry in method.entries.values()]
    missing = method.packed.update.finish(names) if method.packed.update else names
    if missing and waits == "unpacked":
        raise Refused(f"the checkpoint that is loaded has not all experts of {', '.join(missing)}")
