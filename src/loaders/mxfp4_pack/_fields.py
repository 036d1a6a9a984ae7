"""Every field of the manifest that this package uses, with its type and range; mxfp4-pack-format(5) describes them."""

from typing import Any

from ._entries import DTYPES, ROLES
from ._errors import Refused
from ._forms import Flag, List, Map, Number, Scalar, Text, Whole, check

PARTS = ("codes", "scales", "bias", "residual")
AXES = 8  # most dimensions of a tensor
RANKS = 1 << 16
LAYERS = 1 << 20

NAME = Text()
SIZE = Whole(1)
SHAPE = List(SIZE, 1, AXES)
HEADER_SHAPE = List(Whole(), 0, AXES)  # of any tensor: one without axes, or without elements

VIEW = {"dtype": NAME, "shape": SHAPE, "strides": SHAPE}
TENSOR = {"name": NAME, "parameter": NAME, "namespace": NAME, "layer": Whole(0, LAYERS), "rank?": Whole(0, RANKS),
          "file": NAME, "dtype": NAME, "torch_dtype": NAME, "shape": SHAPE, "view?": VIEW, "layout?": NAME,
          "role": Text(ROLES), "part": Text(PARTS), "experts": Whole(1, LAYERS), "xxh3_128": NAME}
SOURCES = List(NAME)  # of a tensor; read for updates alone
PACKED_SOURCE = {"name": NAME, "dtype": Text((*DTYPES, "F4")), "shape": SHAPE}
MODEL = {"hidden": SIZE, "intermediate": SIZE, "padded_hidden": SIZE, "padded_intermediate": SIZE,
         "activation": {"name": NAME, "limit": Number()}}
LAYOUT_FILE = {"size": {"hidden": SIZE, "intermediate": SIZE}, "canary?": Map(NAME), "made_with?": Map(NAME)}
SET = {"engine": NAME, "backend": NAME, "layout_version": NAME, "layout_file?": LAYOUT_FILE,
       "requires": Map(Scalar()), "moe_tp_size": Whole(1, RANKS), "model": MODEL,
       "canary?": NAME, "table": NAME}
TENSORS = List(TENSOR, 1)  # of a set's table
NEEDS = List(NAME)
LISTED = {"name": NAME, "kind": NAME, "bytes": Whole(), "xxh3_128?": NAME}
# A set that this package does not serve may have other fields.
ANY_SET = {"engine": NAME, "backend": NAME, "needs?": NEEDS}
SOURCE = {"model_type": NAME, "allow_incomplete?": Flag()}
MANIFEST = {"needs?": NEEDS, "xxh3_128": NAME, "source": SOURCE,
            "files": List(LISTED), "sets": List(ANY_SET, 1)}


def check_set(fields: dict[str, Any], file: str) -> None:
    """Refuses one of the manifest's sets unless its fields have their types."""
    place = f"sets[{fields['number']}]"
    check(fields, SET, file, place)
    if "layout_file" not in fields and "canary" not in fields:
        raise Refused(f"{file}: {place}.canary: missing")
    for name, value in fields["requires"].items():
        if name.startswith("moe_"):
            check(value, NAME, file, f"{place}.requires.{name}")


def check_tensors(fields: dict[str, Any], file: str) -> None:
    """Refuses a set whose tensors' fields do not have their types, or do not agree with the set's."""
    check(fields["tensors"], TENSORS, fields["table"])
    place = f"sets[{fields['number']}]"
    held = {t.get("rank", 0) for t in fields["tensors"]}
    if held != set(range(fields["moe_tp_size"])):
        raise Refused(f"{file}: {place}.moe_tp_size: {fields['moe_tp_size']}, but {len(held)} ranks, up to {max(held)}, have tensors")
