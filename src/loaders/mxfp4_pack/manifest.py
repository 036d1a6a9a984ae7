"""The manifest, and which of its sets serves an engine as it was started.

_fields.py says which fields of the manifest are read, and their types.
"""

import os
from collections.abc import Sequence
from typing import Any

from ._advice import BACKENDS, convert_again, for_kernel
from ._entries import Refused, entry_of, kernel_of, kernels_of, path_of, safe_name
from ._errors import printable
from ._fields import MANIFEST as FIELDS
from ._fields import NEEDS, check_set, check_tensors
from ._files import CONFIG_LIMIT, MANIFEST_LIMIT, TABLE_LIMIT, parse_json, read_file, read_json
from ._forms import check, shown
from ._library import hexdigest
from ._served import SERVED

FORMAT_VERSION = 3
METHOD = "mxfp4_pack"  # quant_method in config.json
MANIFEST = "mxfp4-pack.json"
CONFIG = "config.json"
# As the program reads a config: keys of the language model's part, and of the number of its layers.
NESTED = "thinker_config", "text_config", "llm_config", "language_config"
LAYERS = "num_hidden_layers", "n_layers", "n_layer", "num_layers"


def check_version(version: object) -> None:
    if type(version) is int and 0 < version < FORMAT_VERSION:
        raise Refused(f"made by a pre-release (format {version}); convert the checkpoint again, to another place")
    if type(version) is not int or version != FORMAT_VERSION:
        raise Refused(f"format_version is {shown(version)}, this loader reads {FORMAT_VERSION}: install the loader of the "
                      "mxfp4-pack that wrote these files, or convert again with this one")


def check_needs(fields, known=()):
    """What a reader must know beyond format_version 3 to use a manifest or one of its sets."""
    if unknown := [need for need in fields.get("needs", ()) if need not in known]:
        raise Refused(f"needs {', '.join(unknown)}, which this loader does not know: install a newer one")


def read_manifest(directory: str) -> dict[str, Any]:
    """The fields of a directory's manifest, whose own checksum is right. A set gets its `number`, its place among all, the
    `files` that are listed, and whether the source's scales may be NaN."""
    path = path_of(directory, MANIFEST)
    try:
        data = read_file(path, MANIFEST_LIMIT)
    except FileNotFoundError:
        if not os.path.isdir(directory):
            raise Refused(f"{printable(directory)}: no such directory") from None
        raise Refused(f"{printable(path)} is missing: no output of mxfp4-pack, or an incomplete one; convert it again") \
            from None
    except OSError as error:
        raise Refused(f"{printable(path)}: {error.strerror}") from error
    fields = parse_json(data, printable(path))
    check_manifest(fields, printable(path))
    if not has_own_checksum(data, fields["xxh3_128"]):
        raise Refused(f"{printable(path)}: does not have its own checksum; damaged or edited")
    for number, set_ in enumerate(fields["sets"]):
        set_["number"] = number
        set_["files"] = fields["files"]
        set_["allow_incomplete"] = fields["source"].get("allow_incomplete", False)
    return fields


def check_manifest(fields, file):
    """Refuses a manifest that this package does not know, and one with wrong fields. Of its sets all is checked later."""
    check(fields, {}, file)
    check(fields, {"needs?": NEEDS}, file)
    try:
        check_version(fields.get("format_version"))
        check_needs(fields)
    except Refused as error:
        raise Refused(f"{file}: {error}") from None
    check(fields, FIELDS, file)


def has_own_checksum(data, expected):
    """Whether a manifest's bytes have the checksum that stands in them."""
    begin = data.find(expected.encode())
    zeroed = data[:begin] + b"0" * 32 + data[begin + 32:]
    return len(expected) == 32 and begin >= 0 and hexdigest(zeroed) == expected


def read_table(directory: str, listed: dict[str, Any]) -> list[Any]:
    """The lines of a table, whose checksum is right. listed: its entry in the manifest's files."""
    path = path_of(directory, listed["name"])
    try:
        data = read_file(path, TABLE_LIMIT)
    except OSError as error:
        raise Refused(f"{printable(path)}: {error.strerror}") from error
    if len(data) != listed["bytes"] or hexdigest(data) != listed.get("xxh3_128"):
        raise Refused(f"{printable(path)}: does not have the manifest's checksum; damaged or edited")
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    return [parse_json(line, f"{printable(path)}: line {number}") for number, line in enumerate(lines, 1)]


def read_source_table(directory: str, files: list[dict[str, Any]]) -> list[Any]:
    """What an output says of each tensor of its source."""
    for listed in files:
        if listed["kind"] == "source_table":
            return read_table(directory, listed)
    raise Refused(f"{printable(directory)}: {MANIFEST}: files: none of kind source_table")


def read_tensors(directory: str, fields: dict[str, Any]) -> None:
    """Checks a set and adds its `tensors`, from its table."""
    check_set(fields, MANIFEST)
    for listed in fields["files"]:
        if listed["name"] == fields["table"]:
            fields["tensors"] = read_table(directory, listed)
            return check_tensors(fields, MANIFEST)
    raise Refused(f"{MANIFEST}: {printable(fields['table'])} is not listed")


class Manifest:
    """mxfp4-pack.json of a directory, as one engine may use it."""

    def __init__(self, directory: str, engine: str):
        if engine not in SERVED:
            raise Refused(f"no engine {engine!r}; there are {', '.join(sorted(SERVED))}")
        if not os.path.isdir(directory):
            raise Refused(f"{printable(str(directory))}: packed checkpoints are read from a local directory; "
                          "download it first")
        self.directory = os.path.abspath(directory)
        path_of(self.directory, CONFIG)
        self.config = read_config(directory)
        self.open_sets: dict[tuple[int, int], Any] = {}
        fields = read_manifest(directory)
        self.model_type: str = fields["source"]["model_type"]
        try:
            self.sets = self.served(fields["sets"], engine)
        except Refused as error:
            raise Refused(f"{printable(self.directory)}: {error}") from None

    def served(self, sets: list[dict[str, Any]], engine: str) -> list[dict[str, Any]]:
        """The engine's sets that a loader knows, all their entries and file names checked."""
        own = [s for s in sets if s["engine"] == engine]
        if not own:
            raise Refused(f"was packed for {', '.join(sorted({s['engine'] for s in sets}))}, not for {engine}. "
                          f"{convert_again(self.directory, engine, sets[0]['backend'], how='--add')}")
        served = [s for s in own if is_served(s)]
        if not served:
            raise Refused(f"no loader for experts packed for backend {', '.join(s['backend'] for s in own)}")
        for fields in served:
            check_needs(fields, ("layout_file",) if "layout_file" in fields else ())
            read_tensors(self.directory, fields)
            files = {entry_of(t).file for t in fields["tensors"]}
            for name in files | ({safe_name(fields["canary"])} if "layout_file" not in fields else set()):
                path_of(self.directory, name)
        return served

    @property
    def main_layers(self) -> int:
        """Number of layers without the draft (MTP) ones."""
        number = next((c[key] for c in (text_of(self.config), self.config) for key in LAYERS if key in c), None)
        if type(number) is not int:
            raise Refused(f"{printable(self.directory)}: config.json has no num_hidden_layers; convert it again")
        return number

    @property
    def source_quantization(self) -> dict[str, Any]:
        """The checkpoint's own quantization_config."""
        quantization = self.config.get("quantization_config")
        original = quantization.get("source_quantization_config") if isinstance(quantization, dict) else None
        if not isinstance(original, dict):
            raise Refused(f"{printable(self.directory)}: config.json has no source_quantization_config; convert it again")
        return original

    def kernel(self, asked: str, tp_size: int) -> str:
        """The engine's name for the backend of the set that serves `asked` (auto: any), best one of this MoE TP size."""
        return kernel_of(self.best(asked, tp_size))

    def best(self, asked: str, tp_size: int) -> dict[str, Any]:
        sets = sorted(self.sets, key=lambda s: s["moe_tp_size"] != tp_size)
        found = [s for s in sets if answers(s, asked)]
        if not found:
            raise self.refusal(asked, tp_size, 0)
        return found[0]

    def check_tp_size(self, asked: str, tp_size: int) -> None:
        """Some rank of this MoE tensor-parallel size is packed for the engine's backend."""
        if not any(s["moe_tp_size"] == tp_size for s in self.sets if answers(s, asked)):
            raise self.refusal(asked, tp_size, 0)

    def pick(self, asked: str, tp_size: int, rank: int, backends: Sequence[str] = ()) -> Any:
        """The first set for the engine's backend `asked` (auto: any) and this MoE tensor-parallel size. If the engine's
        kernel is known, `backends` are those that it reads. Returns the same object for every layer."""
        for fields in self.sets:
            if answers(fields, asked, backends) and fields["moe_tp_size"] == tp_size and 0 <= rank < tp_size:
                for name in fields["requires"]:
                    if name.startswith("unset:") and os.environ.get(name[6:]):
                        raise Refused(f"the environment variable {name[6:]} changes the bytes that {fields['engine']}'s "
                                      "kernel wants; unset it")
                return self.opened(fields, rank)
        raise self.refusal(asked, tp_size, rank, backends)

    def opened(self, fields: dict[str, Any], rank: int) -> Any:
        from .packed_set import PackedSet
        key = self.sets.index(fields), rank
        if key not in self.open_sets:
            self.open_sets[key] = PackedSet(self.directory, fields, rank)
        return self.open_sets[key]

    def refusal(self, asked: str, tp_size: int, rank: int, backends: Sequence[str] = ()) -> Refused:
        engine = self.sets[0]["engine"]
        if not 0 <= rank < tp_size:
            return Refused(f"{printable(self.directory)}: rank {rank} of {tp_size}; ranks are 0 to {tp_size - 1}")
        if same := [s for s in self.sets if answers(s, asked, backends)]:
            advice = convert_again(self.directory, engine, same[0]["backend"], tp_size, "--add", same[0]["layout_version"])
        elif wanted := [b for b in backends or BACKENDS.get(asked, ()) if b in SERVED[engine]]:
            advice = for_kernel(self.directory, engine, wanted, tp_size)
        else:
            advice = f"No loader serves {asked}; leave that option out"
        asked = " or ".join(backends) or asked
        held = (f"{kernel_of(s)} (MoE tensor-parallel size {s['moe_tp_size']})" for s in self.sets)
        return Refused(f"{printable(self.directory)} holds experts packed for {', '.join(held)}; asked for is {asked}, rank {rank} of "
                       f"{tp_size}. {advice}")


def is_served(fields):
    """Whether a loader knows a set's backend. Those of layout files have any name: the engine is asked for the canary."""
    served = SERVED.get(fields["engine"], ())
    return fields["backend"] in served or ("layout_file" in fields and bool(served))


def answers(fields, asked, backends=()):
    """Whether a set is for the engine's backend `asked` (auto: any), and for one of mxfp4-pack's `backends` if they are
    given."""
    known = not backends or fields["backend"] in backends or "layout_file" in fields
    return known and (asked == "auto" or asked in kernels_of(fields))


def text_of(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a config that describes the language model."""
    inner = next((config[key] for key in NESTED if isinstance(config.get(key), dict)), None)
    return config if inner is None else text_of(inner)


def read_config(directory: str) -> dict[str, Any]:
    """The language model's part of config.json: the object with the quantization_config. Empty if there is no such file
    or object, because engines call this for every model and check models that are not packed themselves."""
    try:
        config = read_json(os.path.join(directory, CONFIG), CONFIG_LIMIT)
    except (OSError, TypeError, ValueError):
        return {}
    if not isinstance(config, dict):
        return {}
    text = config.get("text_config")
    return config if isinstance(config.get("quantization_config"), dict) or not isinstance(text, dict) else text


def is_method(quantization: object) -> bool:
    """Whether a quantization_config, of whatever type, is that of a packed checkpoint."""
    return isinstance(quantization, dict) and quantization.get("quant_method") == METHOD


def is_packed(directory: str) -> bool:
    """Whether a local directory holds a packed checkpoint. Never raises."""
    return is_method(read_config(directory).get("quantization_config"))
