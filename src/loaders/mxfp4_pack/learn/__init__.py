"""Layouts learned from the code that makes them: `python3 -m mxfp4_pack.learn --help`.

    probe.py    runs a conversion on chosen bytes and reads off where every stored bit comes from
    fit.py      says the same as row order, pads and modes, as a layout file has it
    layout.py   learns a layout so and proves it on random layers (predicted.py: what a file says of stored bytes)
    canary.py   the expert whose stored bytes a file says by their checksums
    engine.py   asks an engine: vllm.py, sglang.py drive its classes (model.py: from whole checkpoint tensors; held.py: to
                what its kernel reads)
    __main__.py the command
"""

from .._errors import printable


class NoRearrangement(Exception):
    """The conversion does more than move and copy bits and replace scales one by one, or does it in no form that a layout file
    has."""

    def __init__(self, message: object = ""):
        super().__init__(printable(str(message), keep="\n"))
