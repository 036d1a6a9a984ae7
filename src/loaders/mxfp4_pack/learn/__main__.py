"""Learns the layout that a conversion makes, and writes it as a layout file for `mxfp4-pack convert --layout FILE`.

    python3 -m mxfp4_pack.learn --engine vllm --model CKPT --moe-backend marlin --tp-size 2 -o marlin.json

runs the installed engine: whole checkpoint tensors of the model's size go through its weight loader and its conversion,
on the first rank, a middle one and the last. CKPT needs only its config.json.

    python3 -m mxfp4_pack.learn --call module:function --hidden 2880 --intermediate 2880 --bias --pairs \\
        --name mykernel -o mykernel.json

The function gets a dict of tensors in the checkpoint's form, with all experts. It returns a dict of the tensors to
store, under the engine's names, experts outermost (see learn/probe.py). The command finds the place of every bit and
proves the result on random layers. If the function does more than move and copy bits and replace scales one by one, the
command reports that and writes nothing.

    python3 -m mxfp4_pack.learn --engine vllm --model CKPT --moe-backend marlin --tp-size 2 --check marlin.json

checks, after an update of the engine, whether the engine still writes the bytes that the file describes.
"""

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap

from .._program import program

if importlib.util.find_spec("torch") is None:
    print("mxfp4_pack.learn: error: it needs torch, which this Python does not have", file=sys.stderr)
    sys.exit(2)

from . import NoRearrangement
from .canary import SCALES as CANARY_SCALES
from .engine import ENGINES, Engine, Function, check_against, learn_from
from .layout import to_text
from .probe import ALL_SCALES, Size

LONGEST_LINE = 800  # characters of an exception's message


def function_of(text):
    module, _, name = text.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as e:
        raise NoRearrangement(f"--call {text}: {e}") from e


def refusal_of(text, file):
    """The reason why mxfp4-pack refuses a layout file. None if it accepts the file, or if the program is not
    installed."""
    if (path := program()) is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        trial = os.path.join(folder, os.path.basename(file))
        with open(trial, "x") as f:
            f.write(text)
        done = subprocess.run([path, "layout", trial, "-q"], capture_output=True, text=True)
    said = done.stderr.replace(folder + os.sep, "").strip()
    return said.removeprefix("mxfp4-pack: error: ") if done.returncode else None


def scales_from(text):
    """Parses FIRST-LAST. The range must include the canary's scales."""
    ends = re.fullmatch(r"(\d{1,3})-(\d{1,3})", text)
    first, last = map(int, ends.groups()) if ends else (256, 0)
    if first > CANARY_SCALES[0] or not CANARY_SCALES[-1] <= last <= 255:
        raise argparse.ArgumentTypeError(f"'{text}': FIRST-LAST was expected, with {CANARY_SCALES[0]} to {CANARY_SCALES[-1]} in it")
    return range(first, last + 1)


def parser_of():
    parser = argparse.ArgumentParser(prog="python3 -m mxfp4_pack.learn", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", help="with --model, the installed engine to run: vllm or sglang; "
                        "with --call, any engine that will load the output (default: none)")
    asked = parser.add_argument_group("to learn from an engine")
    asked.add_argument("--model", metavar="CKPT", help="checkpoint or its config.json: gives sizes and loading")
    asked.add_argument("--moe-backend", default="auto", metavar="NAME", help="the engine's name for it (default: its choice)")
    asked.add_argument("--tp-size", type=int, default=1, metavar="N", help="tensor-parallel ranks (default: 1)")
    own = parser.add_argument_group("to learn from a function")
    own.add_argument("--call", metavar="MODULE:FUNCTION", help="the conversion")
    own.add_argument("--hidden", type=int, metavar="N")
    own.add_argument("--intermediate", type=int, metavar="N", help="of one tensor-parallel rank")
    own.add_argument("--bias", action="store_true", help="layers have biases")
    own.add_argument("--pairs", action="store_true",
                     help="rows of w13 are gate, up, gate, up .., as in GPT-OSS; by default all of gate come first")
    parser.add_argument("--name", help="the kernel's name in the output (default: that of --moe-backend)")
    parser.add_argument("--scales", metavar="FIRST-LAST", type=scales_from, default=ALL_SCALES,
                        help="scale bytes that the conversion accepts, such as 1-254 if 0 and 255 raise an error; checkpoints "
                        "with others are refused (default: 0-255)")
    parser.add_argument("--made-with", action="append", default=[], metavar="LIBRARY=VERSION",
                        help="another name and version for the file")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("-o", dest="file", metavar="FILE", help="layout file to make")
    given.add_argument("--check", metavar="FILE", help="layout file to compare with the installed engine")
    return parser


def check(o, parser):
    if bool(o.call) == bool(o.model):
        parser.error("either --call or --engine and --model")
    if o.model and o.engine not in ENGINES:
        parser.error(f"--model asks an engine: --engine {' or '.join(ENGINES)}")
    if o.call and not ((o.name or o.check) and o.hidden and o.intermediate):
        parser.error("--call needs --hidden, --intermediate and --name")
    if o.call and (o.hidden % 32 or o.intermediate % 32 or o.hidden < 32 or o.intermediate < 32):
        parser.error("--hidden and --intermediate are multiples of 32")
    if not 1 <= o.tp_size <= 1024:
        parser.error("--tp-size is 1 to 1024")
    if o.file and os.path.lexists(o.file):
        parser.error(f"{o.file}: exists; a new file is made")


def who_is_asked(o):
    if o.model:
        return Engine(o.engine, o.model, o.moe_backend, o.tp_size, o.scales)
    return Function(function_of(o.call), Size(o.hidden, o.intermediate, o.bias), o.pairs, o.scales)


def make(o, who):
    learned, made_with = learn_from(who)
    made_with |= dict(text.partition("=")[::2] for text in o.made_with)
    name = o.name or re.sub(r"[^\w.-]", "-", o.moe_backend)
    text = to_text(name, o.engine or "none", learned, made_with)
    if why := refusal_of(text, o.file):
        raise NoRearrangement(why)
    with open(o.file, "x") as file:
        file.write(text)
    for t in learned.tensors:
        if t.map.free.any():
            print(f"{t.key}: {t.map.free.sum()} bytes of each expert are not written; they are pads here", file=sys.stderr)


def main(arguments=None):
    parser = parser_of()
    o = parser.parse_args(arguments)
    check(o, parser)
    try:
        if o.check:
            check_against(o.check, who_is_asked(o))
            print(f"{o.check}: the installed engine makes these bytes")
        else:
            make(o, who_is_asked(o))
    except NoRearrangement as e:  # an engine's exceptions have several lines
        print(f"mxfp4_pack.learn: error: {textwrap.shorten(str(e), LONGEST_LINE, placeholder=' ..')}", file=sys.stderr)
        return 2
    except OSError as e:
        print(f"mxfp4_pack.learn: error: {e.filename}: {e.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
