"""The SGLang plugin's first and last steps in an installed SGLang, without a GPU: the arguments, updates, the fallback.

    MXFP4_PACK=build/mxfp4-pack MXFP4_PACK_LIBRARY=build/libmxfp4_pack.so PYTHONPATH=src/loaders:tests/loaders \
        python3 tests/engines/sglang_start.py

SGLang's own resolution of arguments, which asks for a GPU, is left out; all else is as in sglang_classes.py.
"""

import os
import pickle
import sys
import tempfile
import unittest
from types import SimpleNamespace
from unittest import mock

import sglang
import torch
from sglang.srt import server_args
from sglang.srt.model_executor.model_runner_components import weight_updater
from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater
from sglang.srt.utils.hf_transformers import config as hf_config

import cells
from mxfp4_pack import Refused
from mxfp4_pack.sglang import arguments, hooks, updates
from packed_dir import Checkpoint, flip_canary, random_layer
from raw_layers import tensors_of
from sglang_classes import CASES, Layers, can_run

ON_PATH = {"PATH": f"{os.path.dirname(os.path.abspath(os.environ['MXFP4_PACK']))}:{os.environ['PATH']}"}


class Start(unittest.TestCase):
    def setUp(self):
        self.directory = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "out")
        hooks.manifest = None

    def start(self, directory, **given):
        """ServerArgs as a launcher completes it, with SGLang's own resolution, which asks for a GPU, left out."""
        completed = []
        if arguments.step() == "resolve_once":
            patch = mock.patch("sglang.srt.arg_groups.pipeline.run_resolution_pipeline", completed.append)
        else:
            def leave(args):
                completed.append(args)
                args.model_path = "dummy"
            patch = mock.patch.object(server_args.ServerArgs, "_handle_return_hidden_states_mode", leave)
        with patch:
            args = server_args.ServerArgs(model_path=directory, **given)
            if arguments.step() == "resolve_once":
                args.resolve_once()
        self.assertEqual(completed, [args])
        return args

    def test_arguments(self):
        checkpoint = Checkpoint("sglang", "marlin", "gpt_oss", 320, 352, {("model", 0): random_layer(1, 2, 320, 352, True)})
        checkpoint.write(self.directory)
        args = self.start(self.directory)
        self.assertEqual(args.moe_runner_backend, "marlin")
        again = pickle.loads(pickle.dumps(args))  # it goes to the processes that load the model
        self.assertEqual(again.moe_runner_backend, "marlin")
        if arguments.step() == "resolve_once":
            again.resolve_once()
        for given, message in (({"tp_size": 2}, "rank 0 of 2"), ({"enable_eplb": True}, "--enable-eplb"),
                               ({"moe_runner_backend": "triton_kernel"}, "asked for is triton_kernel"),
                               ({"load_format": "dummy"}, "--load-format dummy")):
            with self.subTest(given=given), self.assertRaisesRegex(Refused, message):
                self.start(self.directory, **given)
        os.environ.pop(arguments.CHECKED)
        with self.assertRaisesRegex(Refused, "did not run the plugin's hook"):
            hf_config.get_config(self.directory, trust_remote_code=False)

    def test_a_model_that_is_not_packed(self):
        os.mkdir(self.directory)
        with open(os.path.join(self.directory, "config.json"), "w") as file:
            file.write('{"model_type": "gpt_oss", "quantization_config": null}')
        self.assertIn(self.start(self.directory, enable_eplb=True).moe_runner_backend, ("auto", None))
        self.assertIsNone(hooks.manifest)

    def test_updates(self):
        updater = SimpleNamespace()
        hooks.manifest = SimpleNamespace()
        done, message = WeightUpdater.update_weights_from_disk(updater, "elsewhere", "auto")
        self.assertFalse(done)
        self.assertIn("cannot be updated in a running server", message)
        done, message = WeightUpdater.update_weights_from_tensor(updater, [], "direct")
        self.assertFalse(done)
        self.assertIn("over packed experts", message)


class Model(torch.nn.Module):
    """An expert layer and what stands for all else."""

    def __init__(self, layer):
        super().__init__()
        self.experts, self.others = layer, {}

    def load_weights(self, weights):
        self.others |= dict(weights)


@unittest.skipUnless("MXFP4_PACK_LIBRARY" in os.environ, "MXFP4_PACK_LIBRARY names no libmxfp4_pack.so")
class Tensors(Layers):
    """New unpacked experts through SGLang's WeightUpdater, in two requests. The layer must then equal SGLang's own
    conversion."""

    def test_updates(self):
        asked = "marlin", "triton-hopper", "flashinfer-cutlass", "humming"
        for case in CASES:
            for family in case.families:
                if case.backend in asked and case.layout != "file" and can_run(case, family):
                    with self.subTest(backend=case.backend, layout=case.layout, family=family):
                        self.updates(case, family)

    def updates(self, case, family):
        hidden, intermediate = case.sizes
        with tempfile.TemporaryDirectory() as parent:
            sources = []
            for seed in ("1", "2"):
                os.mkdir(folder := os.path.join(parent, seed))
                sources.append(cells.Source(family, folder, "--tiny", "--hidden", hidden, "--intermediate", intermediate,
                                            "--seed", seed))
            old, new = sources
            for tp in (1, 2):
                out = os.path.join(parent, f"out{tp}")
                old.convert(out, "sglang", case.backend, case.layout, tp)
                for rank, (layer, _) in enumerate(self.at_ranks(old, case, out, tp)):
                    self.update(layer, experts_of(new.directory))
                    self.compare(layer, self.engines_layer(case, new, tp, rank), case)

    def update(self, layer, experts):
        model = Model(layer)
        updates.after_load_model(model)
        settings = SimpleNamespace(weight_cache_mode="off")
        for name, value in (("get_model", settings), ("get_parallel", SimpleNamespace(tp_rank=0)),
                            ("_unsupported_derived_weight_cache_error", None)):
            self.exchange(weight_updater, name, lambda *_, value=value: value)
        updater = WeightUpdater(
            tp_rank=0, device="cpu", gpu_id=0, model_config=None, custom_weight_loaders={}, get_model=lambda: model,
            update_model_fields=None, recapture_cuda_graph=None, get_model_runner=lambda: SimpleNamespace(server_args=settings))
        addresses = [p.data_ptr() for p in layer.parameters()]
        has_sessions = hasattr(updater, "begin_weight_update")  # from 0.5.21 on
        if has_sessions:
            updater.begin_weight_update()
        half = len(experts) // 2
        for given in (experts[:half], [*experts[half:], ("norm", torch.ones(1))]):
            self.assertEqual(updater.update_weights_from_tensor(given), (True, "Success"))
        if has_sessions:
            updater.end_weight_update(run_post_load=False)
        self.assertEqual(addresses, [p.data_ptr() for p in layer.parameters()])
        self.assertEqual(list(model.others), ["norm"])


def experts_of(checkpoint):
    return [(name, t) for name, t in tensors_of(checkpoint).items() if ".experts." in name and "shared" not in name]


class Fallback(Layers):
    def test_a_changed_canary(self):
        """SGLang converts the unpacked experts itself. Left out: cases with a canary of their own or without unpacked
        experts. Also left out is Kimi-K3: SGLang 0.5.23's loader fills pads of scales with zeros, the fallback with
        1.0; codes there are zero."""
        left_out = "file", "k3", "i128-k3", "1-k3"
        for case in CASES:
            for family in case.families if case.layout not in left_out and case.backend != "flashinfer-humming" else ():
                if can_run(case, family):
                    with self.subTest(backend=case.backend, layout=case.layout, family=family):
                        self.falls_back(case, self.source(family, case.sizes))

    def falls_back(self, case, source):
        with tempfile.TemporaryDirectory() as parent:
            out = os.path.join(parent, "out")
            source.convert(out, "sglang", case.backend, case.layout, 2)
            flip_canary(out)
            with self.assertRaisesRegex(Refused, "Or set MXFP4_PACK_FALLBACK=unpack"):
                list(self.at_ranks(source, case, out, 2))
            os.rename(out, out := out + "2")  # SGLang keeps the configs that it has read
            with mock.patch.dict(os.environ, ON_PATH, MXFP4_PACK_FALLBACK="unpack"):
                for ours, engines in self.at_ranks(source, case, out, 2):
                    self.assertIsNotNone(ours.mxfp4_pack.set.fallback)
                    self.compare(ours, engines, case)


if __name__ == "__main__":
    print(f"SGLang {sglang.__version__}, torch {torch.__version__}, python {sys.version.split()[0]}")
    unittest.main()
