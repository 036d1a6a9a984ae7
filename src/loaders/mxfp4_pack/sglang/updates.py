"""Updates of a model that serves. Its experts are in their kernel's form, which SGLang cannot load raw ones into; a packed
directory of the same form is read over them."""

import logging
import pkgutil

from mxfp4_pack import Manifest, Refused, is_packed

from . import hooks

logger = logging.getLogger("sglang.mxfp4_pack")
# SGLang cannot leave the experts and change the rest either, which comes in several requests.
UPDATE = ("packed MXFP4 experts cannot be updated in a running server from {}: the new weights' other tensors would run with "
          "the old experts. Pack them (mxfp4-pack convert) and give /update_weights_from_disk that directory, or start a "
          "server with it; nothing was changed")
RAW = "raw tensors"


def from_disk(original, updater, model_path, load_format, weight_name_filter=None, **given):
    """All of a packed directory or nothing: SGLang loads the rest, then the experts are read."""
    old = hooks.manifest
    if old is None and not is_packed(model_path):
        return original(updater, model_path, load_format, weight_name_filter, **given)
    if old is None or not is_packed(model_path):
        return False, UPDATE.format(model_path)
    if weight_name_filter is not None:
        return False, UPDATE.format(f"a part of {model_path}")
    layers = [packed for module in updater.get_model().modules() if (packed := hooks.packed_of(module))]
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
            set_.loading.drop()  # what still reads
    for packed, set_, own in zip(layers, sets, entries):
        packed.set, packed.entries = set_, own
    for set_ in {id(set_): set_ for set_ in sets}.values():
        logger.info(set_.report())


def back(original, updater, load_format, given, why, layers):
    """The weights of before, experts too. SGLang's own way back would read the new directory again."""
    old = hooks.manifest
    done, message = original(updater, old.directory, load_format, **given)
    if not done:
        raise Refused(f"{why}; and the weights of {old.directory} could not be loaded again: {message}. Start the server anew")
    read_over(layers, [packed.set.again(Manifest(old.directory, "sglang"), packed.place, packed.entries) for packed in layers])
    return f"{why}; the weights of {old.directory} serve on"


def update(original, updater, *args, **kwargs):
    """From a request's tensors, or from another process's, which would join a group for it first."""
    if hooks.manifest is None:
        return original(updater, *args, **kwargs)
    return False, UPDATE.format(RAW)


def from_distributed(original, manager, request):
    """Refused here, because what SGLang calls below it has other names from 0.5.21 on."""
    if hooks.manifest is None:
        return original(manager, request)
    output = pkgutil.resolve_name("sglang.srt.managers.io_struct.UpdateWeightsFromDistributedReqOutput")
    return output(success=False, message=UPDATE.format(RAW))
