"""Learns layouts from the code that makes them: see `python3 -m mxfp4_pack.learn --help`.

    probe.py    runs a conversion on chosen bytes and finds the source of every stored bit
    fit.py      describes the sources as row order, pads and modes, as a layout file does
    layout.py   learns a layout and proves it on random layers (predicted.py: the stored bytes that a file predicts)
    canary.py   the canary, an expert whose stored bytes are in a layout file as checksums
    engine.py   runs an engine: vllm.py, sglang.py drive its classes (model.py: from whole checkpoint tensors;
                held.py: to the tensors that its kernel reads)
    __main__.py the command
"""

from .._errors import printable


class NoRearrangement(Exception):
    """The conversion does more than move and copy bits and replace scales one by one, or a layout file cannot describe
    it."""

    def __init__(self, message: object = ""):
        super().__init__(printable(str(message), keep="\n"))
