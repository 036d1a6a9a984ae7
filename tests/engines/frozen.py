"""Outputs of format version 1 (testdata/frozen-v1) in an installed engine's own classes, without a GPU: the rows `frozen` of
matrix.json.

    MXFP4_PACK=build/mxfp4-pack MXFP4_PACK_LIBRARY=build/libmxfp4_pack.so PYTHONPATH=src/loaders:tests/loaders \
        python3 tests/engines/frozen.py vllm|sglang

`synth` makes the checkpoint again. A layer that the loader reads from the output is compared with the engine's own
conversion of the checkpoint; vllm_classes.py and sglang_classes.py list the replaced parts. If the engine makes other
bytes, the loader must refuse the output; with MXFP4_PACK_FALLBACK=unpack it must give the engine's layer. SGLang's own
loader loads a sharded state; the model around its experts has the state's other names and shapes.
"""

import importlib
import json
import os
import shutil
import sys
import tempfile
import unittest
from contextlib import ExitStack
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import torch
from safetensors import safe_open

import cells
from golden import TESTDATA, same
from mxfp4_pack import Manifest, Misfit, Refused

ENGINE = sys.argv.pop(1)
classes = importlib.import_module(f"{ENGINE}_classes")
canary = importlib.import_module(f"mxfp4_pack.{ENGINE}.canary")
FROZEN = os.path.join(TESTDATA, "frozen-v1")
FAMILIES = {model: family for family, model in cells.MODELS.items()}
FALLBACK = {"PATH": f"{os.path.dirname(os.path.abspath(os.environ['MXFP4_PACK']))}:{os.environ['PATH']}",
            "MXFP4_PACK_FALLBACK": "unpack"}
EXPERTS = "model.layers.0.mlp.experts"


class Output(NamedTuple):
    name: str
    synth: list   # its checkpoint's model, and arguments
    set: dict     # of its manifest, for the engine
    is_sharded: bool

    family = property(lambda self: FAMILIES[self.synth[0]])


def rows_of(path):
    with open(os.path.join(FROZEN, path)) as file:
        return [line.split() for line in file if not line.startswith("#")]


def outputs():
    synth = {name: arguments for name, *arguments in rows_of("sources/list")}
    for name, source, *_ in rows_of("list"):
        with open(os.path.join(FROZEN, name, "mxfp4-pack.json")) as file:
            manifest = json.load(file)
        for set_ in manifest["sets"]:
            if set_["engine"] == ENGINE:
                yield Output(name, synth[source], set_, manifest.get("format") == "sharded-state")


def case_of(output, **wanted):
    """The first case that this engine can run for the output's family and backend."""
    wanted = {"backend": output.set["backend"]} | wanted
    return next((case for case in classes.CASES if all(getattr(case, name) == value for name, value in wanted.items())
                 and output.family in (case.families or getattr(classes, "FAMILIES", ()))
                 and classes.can_run(case, output.family)), None)


class Frozen(classes.Layers):
    def test_outputs(self):
        for output in outputs():
            with self.subTest(output.name), tempfile.TemporaryDirectory() as self.folder:
                found = self.found(output)
                if found:
                    cells.record({"output": output.name, "engine": ENGINE, "version": classes.VERSION,
                                  "shown": found[0], "how": found[1]})

    def found(self, output):
        """(the test result, how), or None if another release must run the test."""
        model, *arguments = output.synth
        source = cells.Source(output.family, self.folder, *arguments)
        if output.is_sharded:
            case = case_of(output, layout=output.set["layout_version"] + "-corner")
            return case and cells.is_asked(case) and self.sharded_state(output, case, source)
        case = case_of(output, layout=output.set["layout_version"]) or case_of(output)
        if case is None:
            return self.refused(output, source)
        if not cells.is_asked(case):
            return None
        if case.layout == output.set["layout_version"]:
            self.equal(output, case, source)
            return "real classes", "each layer is the engine's own"
        with self.assertRaises(Misfit):
            self.equal(output, case, source)
        with mock.patch.dict(os.environ, FALLBACK):
            self.equal(output, case, source)
        return "not", f"it wants {case.layout}; refused, and by MXFP4_PACK_FALLBACK=unpack each layer is the engine's own"

    def copy_of(self, output):
        """A new one: engines remember the configs of directories."""
        return shutil.copytree(os.path.join(FROZEN, output.name), tempfile.mkdtemp(dir=self.folder), dirs_exist_ok=True)

    def equal(self, output, case, source):
        tp, ranks = output.set["moe_tp_size"], output.set["ranks"]
        for ours, engines in self.at_ranks(source, case, self.copy_of(output), tp, ranks):
            self.compare(ours, engines, case if ENGINE == "sglang" else case.layout == "c")

    def refused(self, output, source):
        """Why no release is served with it."""
        directory = self.copy_of(output)
        with self.assertRaises((Refused, NotImplementedError)) as caught:
            packed = Manifest(directory, ENGINE).pick("auto", output.set["moe_tp_size"], output.set["ranks"][0])
            canary.compare(packed, source.model_type, torch.device("cpu"))
        if not isinstance(caught.exception, Misfit):  # which is this release alone
            return "not", str(caught.exception).removeprefix(f"{directory}: ")

    def sharded_state(self, output, case, source):
        """By SGLang's ShardedStateLoader, without the plugin."""
        directory = self.copy_of(output)
        for rank in output.set["ranks"]:
            with ExitStack() as self.stack:
                self.as_on_a_gpu(case, source.family)
                tp = output.set["moe_tp_size"]
                number, share = source.rank(tp, rank)
                with mock.patch.object(classes.hooks, "manifest", None):
                    loaded = self.layer(case, source, share, tp, rank, number)
                load_state(directory, rank, loaded)
                self.same_but_for_corner(loaded, self.engines_layer(case, source, tp, rank), share)
        return "real classes", "by SGLang's ShardedStateLoader; but for w2's scales where pad rows and pad columns meet"

    def same_but_for_corner(self, loaded, engines, share):
        want = dict(engines.named_parameters())
        self.assertEqual([name for name, _ in loaded.named_parameters()], list(want))
        for name, got in loaded.named_parameters():
            if name != "w2_weight_scale":
                same(self, got.data, want[name].data, name)
        got, want = (t.data.view(torch.uint8).flatten() for t in (loaded.w2_weight_scale, want["w2_weight_scale"]))
        experts, hidden, groups = share["w2", "scales"].shape
        padded_hidden, padded_groups = engines.w2_weight.shape[1], engines.w2_weight.shape[2] // 16
        differ = got != want
        self.assertEqual(int(differ.sum()), experts * (padded_hidden - hidden) * (padded_groups - groups))
        self.assertEqual((set(got[differ].tolist()), set(want[differ].tolist())), ({0x7F}, {0}))


def load_state(directory, rank, layer):
    """Puts the layer into a model that has all names and shapes of the state."""
    from sglang.srt.model_loader import loader
    model = torch.nn.Module()
    for file in sorted(os.listdir(directory)):
        if file.startswith(f"model-rank-{rank}-"):
            with safe_open(os.path.join(directory, file), "pt") as f:
                for name in f.keys():
                    if not name.startswith(EXPERTS + "."):
                        tensor = torch.nn.Parameter(torch.zeros_like(f.get_tensor(name)), requires_grad=False)
                        parent_of(model, name).register_parameter(name.rpartition(".")[2], tensor)
    parent_of(model, EXPERTS).add_module("experts", layer)
    config = loader.LoadConfig(load_format="sharded_state")
    given = SimpleNamespace(model_path=directory, revision=None, dtype=torch.bfloat16)
    exchanged = {"_get_quantization_config": None, "_initialize_model": model, "post_load_weights": None,
                 "get_parallel": SimpleNamespace(tp_rank=rank), "get_tensor_model_parallel_rank": rank}
    with ExitStack() as stack:
        for name, value in exchanged.items():
            stack.enter_context(mock.patch.object(loader, name, lambda *_, value=value: value, create=True))
        loader.ShardedStateLoader(config).load_model(model_config=given, device_config=SimpleNamespace(device="cpu"))


def parent_of(model, name):
    for part in name.split(".")[:-1]:
        if part not in model._modules:
            model.add_module(part, torch.nn.Module())
        model = model._modules[part]
    return model


if __name__ == "__main__":
    unittest.main()
