"""Layouts learned from an installed engine's own weight loaders and conversions, on a machine without a GPU, compared with the
built-in ones: the rows `learned` of matrix.json.

    MXFP4_PACK=build/mxfp4-pack MXFP4_PACK_LIBRARY=build/libmxfp4_pack.so PYTHONPATH=src/loaders:tests/loaders \
        python3 tests/engines/learn_cells.py vllm|sglang [small|true]

The fakes are those of vllm_classes.py and sglang_classes.py: platform, capability and the choice of a kernel, whose
object is not created. AITER needs its sources on the path (aiter/ops, aiter/utility and csrc/include of e404860). Its
aiter/jit needs ROCm and must be replaced by a module that returns gfx950 and compiles nothing. Sizes: one that needs
pads on every side, and published sizes on eight ranks. A row is `equal` if the learned file equals the built-in layout
version that the program names; else it holds the refusal.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from types import SimpleNamespace

import cells
from mxfp4_pack.learn import NoRearrangement
from mxfp4_pack.learn.engine import Engine, learn_from
from mxfp4_pack.learn.layout import to_text
from mxfp4_pack.learn.probe import ALL_SCALES

FAMILIES = "gpt-oss", "deepseek-v4", "kimi-k3"
TRUE_RANKS = 8


def program(*arguments):
    done = subprocess.run([os.environ["MXFP4_PACK"], *map(str, arguments)], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def same_as(path):
    """The built-in backend that the program finds first for a layout file."""
    return json.loads(program("layout", path, "--json"))["same_as"]


def sources(family, sizes, folder, which):
    """(checkpoint, tp) at the case's sizes, and at the model's own."""
    model = cells.MODELS[family]
    for name, tp, options in (("small", 1, ["--tiny", "--hidden", sizes[0], "--intermediate", sizes[1]]),
                              ("true", TRUE_RANKS, ["--layers", 2, "--experts", 2, "--vocab", 64])):
        if which and name not in which:
            continue
        path = os.path.join(folder, f"{family}-{name}-{'x'.join(map(str, sizes))}")
        if not os.path.exists(path):
            program("synth", model, path, *options, "-q")
        yield path, tp


def result_of(classes, checkpoint, tp, case, folder):
    """(hidden, intermediate on a rank, the result)"""
    engine = classes.__name__.split("_")[0]
    built_in, made = (os.path.join(folder, name) for name in ("built-in.json", "learned.json"))
    for path in (built_in, made):
        if os.path.exists(path):
            os.remove(path)
    program("layout", built_in, "--backend", case.backend, "--engine", engine, "--layout-version", case.layout, "--model",
            checkpoint, "--tp-size", tp)
    try:
        scales = range(1, 255) if case.backend in getattr(classes, "NO_ZERO_SCALES", ()) else ALL_SCALES
        learned, made_with = learn_from(Engine(engine, checkpoint, classes.runner_of(case), tp, scales))
    except NoRearrangement as e:
        return None, f"refused: {e}"
    with open(made, "w") as file:
        file.write(to_text("learned", engine, learned, made_with))
    found = same_as(made)
    itself = {"backend": case.backend, "engine": engine, "layout_version": case.layout}
    same = found == itself or (os.path.exists(built_in) and found == same_as(built_in))
    return learned.size, "equal" if found and same else f"differs: {found}"


def run(engine, which):
    classes = importlib.import_module(f"{engine}_classes")
    layers = classes.Layers()
    with tempfile.TemporaryDirectory() as folder:
        for case, family in classes.learnable(FAMILIES):
            for checkpoint, tp in sources(family, case.sizes, folder, which):
                with ExitStack() as layers.stack:
                    layers.as_on_a_gpu(case, family)
                    size, result = result_of(classes, checkpoint, tp, case, folder)
                size = size or SimpleNamespace(hidden=0, intermediate=0)
                cells.record({"engine": engine, "version": classes.VERSION, "backend": case.backend,
                              "layout": case.layout, "family": family, "hidden": size.hidden,
                              "intermediate": size.intermediate, "tp": tp, "gpu": "", "learned": result})


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
