"""Repeats an engine's function on layers of meta parameters without calling the function again.

torch computes the shapes of meta tensors in Python. Triton's conversion does this some hundred times per layer. For a
model of 24 layers, that takes as long as reading the packed experts."""

import copy

import torch

KINDS = (bool, int, torch.dtype, torch.device, type(None))  # equal for layers of one size; str and float may differ


class Repeat:
    """Repeats the effect of one function's first call on other layers with the same key."""

    def __init__(self):
        self.known = {}

    def __call__(self, key, function, *objects):
        """The result of function(), which may set and delete attributes of `objects`. From the second call with a key
        on, result and attributes are copies of the first call's. This is done only if all values can be copied: meta
        tensors and triton_kernels' objects."""
        if known := self.known.get(key):
            result, changes = copy.deepcopy(known)
            for names, (gone, new) in zip(spaces(objects), changes, strict=True):
                for name in gone:
                    names.pop(name, None)
                names.update(new)
            return result
        before = [dict(names) for names in spaces(objects)]
        result = function()
        changes = [changed(*pair) for pair in zip(before, spaces(objects), strict=True)]
        if all(map(is_copied, (result, *(value for _, new in changes for value in new.values())))):
            self.known[key] = copy.deepcopy((result, changes))
        return result


def spaces(objects):
    """All attribute dicts of the objects."""
    return [names for thing in objects
            for names in (vars(thing), *(vars(thing)[own] for own in ("_parameters", "_buffers") if own in vars(thing)))]


def changed(before, after):
    """(removed names, {name: new or changed value})"""
    return ([name for name in before if name not in after],
            {name: value for name, value in after.items() if name not in before or before[name] is not value})


def is_copied(value):
    if isinstance(value, (tuple, list)):
        return all(map(is_copied, value))
    if isinstance(value, torch.Tensor):
        return value.is_meta
    return isinstance(value, KINDS) or "triton_kernels" in type(value).__module__.split(".")
