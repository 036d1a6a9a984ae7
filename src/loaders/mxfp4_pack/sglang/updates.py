"""Updates a serving model. A packed directory of the same form is read over its experts. All other updates in SGLang
pass unpacked experts to the model's load_weights, which packs them in place."""

import logging
from functools import partial

from mxfp4_pack import Manifest, Refused, is_packed, expert_update
from mxfp4_pack.expert_update import Served

from . import eplb, hooks

logger = logging.getLogger("sglang.mxfp4_pack")
UPDATE = ("packed MXFP4 experts cannot be updated in a running server from {}: the new weights' other tensors would run with "
          "the old experts. Pack them (mxfp4-pack convert) and give /update_weights_from_disk that directory, or start a "
          "server with it; nothing was changed")


def around_load_model(original, loader, *, model_config, **given):
    hooks.is_draft = getattr(model_config, "is_draft_model", False)
    model = original(loader, model_config=model_config, **given)
    after_load_model(model)
    return model


def after_load_model(model):
    hooks.after_load_model(model)
    eplb.move_bytes(model)
    if packed_layers(model):
        model.load_weights = partial(load_weights, model, model.load_weights)


def packed_layers(model):
    """The packed layers, with their experts in the current order of SGLang's load balancer."""
    layers = [module for module in model.modules() if hooks.packed_of(module)]
    for layer in layers:
        packed = layer.mxfp4_pack
        packed.experts[:] = eplb.logical_experts(layer, next(iter(packed.entries.values())).experts)
    return [layer.mxfp4_pack for layer in layers]


def updates_of(layers):
    return expert_update.updates_of([Served(packed.set, packed.entries, packed.held, packed.experts)
                                     for packed in layers])


def load_weights(model, original, weights, *args, **given):
    """Replaces the model's load_weights: packs unpacked experts, and lets the model load all other weights."""
    layers = packed_layers(model)
    rest = expert_update.others(updates_of(layers), weights, lambda: refuse_unless_held(layers))
    return original(rest, *args, **given)


def update(model, names, tensors):
    """See mxfp4_pack.update."""
    layers = packed_layers(model)
    refuse_unless_held(layers)
    expert_update.pack(updates_of(layers), names, tensors)


def from_tensor(original, updater, named_tensors, load_format=None):
    """Returns a refusal as SGLang's message. Other updates raise an exception if the model refuses new weights."""
    if hooks.manifest is not None and load_format == "direct":
        return False, "load_format direct writes unpacked tensors over packed experts. Leave it out; nothing was changed"
    try:
        return original(updater, named_tensors, load_format)
    except Refused as why:
        return False, f"{why}; the tensors before it were updated"


def from_disk(original, updater, model_path, load_format, weight_name_filter=None, **given):
    """Loads a packed directory completely or not at all: SGLang loads the other weights, then the experts are read."""
    old = hooks.manifest
    if old is None and not is_packed(model_path):
        return original(updater, model_path, load_format, weight_name_filter, **given)
    if old is None or not is_packed(model_path):
        return False, UPDATE.format(model_path)
    if weight_name_filter is not None:
        return False, UPDATE.format(f"a part of {model_path}")
    layers = packed_layers(updater.get_model())
    try:
        new = Manifest(model_path, "sglang")
        sets = [packed.set.again(new, packed.place, packed.entries) for packed in layers]
        refuse_unless_held(layers)
    except Refused as why:
        return False, f"{why}; nothing was changed"
    done, message = original(updater, model_path, load_format, **given)
    try:
        if done:
            read_over(layers, sets)
            hooks.manifest = new
            return done, message
    except (Refused, OSError) as why:
        message = f"{model_path}: {why}"
    return False, back(original, updater, load_format, given, message, layers)


def refuse_unless_held(layers):
    if any(packed.to_host for packed in layers):
        raise Refused("--cpu-offload-gb: experts are in the host's memory. Start a server with the new weights")
    if any(packed.held is None for packed in layers):
        raise Refused("this server converted the experts itself (MXFP4_PACK_FALLBACK): start one with the new weights")


def read_over(layers, sets):
    """Begins the reads of all layers before it waits for the first."""
    entries = [set_.layer(*packed.place, "an update") for packed, set_ in zip(layers, sets)]
    try:
        for packed, set_, own in zip(layers, sets, entries):
            set_.expect(own, packed.experts, packed.device, into=packed.held)
        for packed, set_, own in zip(layers, sets, entries):
            set_.read_layer(own, packed.experts, packed.device)
    finally:
        for set_ in sets:
            set_.loading.drop()  # cancels unfinished reads
    for packed, set_, own in zip(layers, sets, entries):
        packed.set, packed.entries = set_, own
    for set_ in {id(set_): set_ for set_ in sets}.values():
        logger.info(set_.report())


def back(original, updater, load_format, given, why, layers):
    """Restores the previous weights, including experts. SGLang's own rollback would read the new directory again."""
    old = hooks.manifest
    done, message = original(updater, old.directory, load_format, **given)
    if not done:
        raise Refused(f"{why}; and the weights of {old.directory} could not be loaded again: {message}. "
                      "Restart the server")
    read_over(layers, [packed.set.again(Manifest(old.directory, "sglang"), packed.place, packed.entries) for packed in layers])
    return f"{why}; the weights of {old.directory} serve on"
