"""The load formats of an installed SGLang with a packed layer, without a GPU: rows of load_formats.json.

    MXFP4_PACK=build/mxfp4-pack MXFP4_PACK_LIBRARY=build/libmxfp4_pack.so PYTHONPATH=src/loaders:tests/loaders \
        python3 tests/engines/sglang_load_formats.py

Every choice of --load-format goes through SGLang's arguments: the plugin refuses it there or permits it. With each
permitted format SGLang's own DefaultModelLoader loads a model of one expert layer, as in sglang_classes.py, beside the
other tensors of a tiny checkpoint. Replaced are also the creation of the model, the server's settings, GPU memory as
the destination of fastsafetensors, and InstantTensor's iterator over the files.
"""

import os
import sys
import tempfile
import unittest
from contextlib import ExitStack
from importlib import util
from types import SimpleNamespace
from unittest import mock

import torch
from sglang.srt import server_args
from sglang.srt.arg_groups.choices import LOAD_FORMAT_CHOICES
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.layers.quantization import marlin_utils_fp4, mxfp4
from sglang.srt.model_loader import loader, weight_utils

import cells
from format_model import Model, files_of
import host_kernels
from mxfp4_pack import Refused
from mxfp4_pack.sglang import arguments, hooks
from sglang_classes import CASES, VERSION, Layers

WORKS = ("auto", "safetensors", "fastsafetensors", "instanttensor")
LOADED = [("marlin", "1", "gpt-oss"), ("marlin", "i64-corner", "deepseek-v4")]
if util.find_spec("triton_kernels.matmul"):  # of the sglang-kernel that this release needs
    LOADED.append(("triton-hopper", "c64", "gpt-oss"))
SETTINGS = SimpleNamespace(weight_loader_disable_mmap=False, weight_loader_prefetch_checkpoints=False,
                           weight_loader_prefetch_num_threads=1, weight_loader_drop_cache_after_load=False,
                           model_checksum=None)


class Formats(Layers):
    def exchange_kernels(self):
        self.exchange(mxfp4, "has_triton_kernels", True)
        self.exchange(marlin_utils_fp4, "gptq_marlin_repack", host_kernels.sglang_marlin_repack)
        self.exchange(marlin_utils_fp4, "marlin_make_workspace", lambda device, n: torch.zeros(n, dtype=torch.int32))

    def start_arguments(self, directory, **given):
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

    def load(self, case, source, out, load_format):
        number, share = source.rank(1, 0)
        config = self.start(out)
        for name, value in (("_initialize_model", lambda *given: Model(self.layer(case, source, share, 1, 0, number))),
                            ("_get_quantization_config", lambda *given: None), ("get_model", lambda: SETTINGS),
                            ("get_server_args", lambda: None), ("instanttensor_weights_iterator", files_of)):
            self.exchange(loader, name, value)
        of = weight_utils.SafeTensorsFileLoader
        self.exchange(weight_utils, "SafeTensorsFileLoader", lambda pg, device, nogds: of(pg, torch.device("cpu"), nogds=True))
        model_config = mock.MagicMock(model_path=out, revision=None, dtype=torch.bfloat16, hf_config=config,
                                      modelopt_quant=None, quantization=None)
        device = SimpleNamespace(device="cpu")
        model = loader.get_model_loader(LoadConfig(load_format=load_format), model_config).load_model(
            model_config=model_config, device_config=device)
        return model, self.engines_layer(case, source, 1, 0)

    def works(self, load_format, case, family):
        source = self.source(family, case.sizes)
        with tempfile.TemporaryDirectory() as parent:
            out = os.path.join(parent, "out")
            source.convert(out, "sglang", case.backend, case.layout, 1)
            hooks.manifest = None
            with ExitStack() as self.stack:
                self.as_on_a_gpu(case, family)
                model, engines = self.load(case, source, out, load_format)
                rest = [name for file in os.listdir(out) if file.startswith("rest-")
                        for name, _ in files_of([os.path.join(out, file)])]
                self.assertEqual(sorted(model.others), sorted(rest))
                self.compare(model.experts, engines.eval(), case)  # as load_model leaves it

    def record(self, load_format, result, backends, how):
        cells.record({"engine": "sglang", "version": VERSION, "format": load_format, "shown": result, "backends": backends,
                      "how": how + " (sglang_load_formats.py)"})

    def test_formats_that_work(self):
        for load_format in WORKS:
            backends = []
            for backend, layout, family in LOADED:
                case = next(c for c in CASES if (c.backend, c.layout) == (backend, layout) and family in c.families)
                with self.subTest(load_format=load_format, backend=backend, family=family):
                    self.works(load_format, case, family)
                    backends.append(backend)
            if len(backends) == len(LOADED):
                how = "files as SGLang gives them to InstantTensor" if load_format == "instanttensor" else (
                    "SGLang's DefaultModelLoader, without a GPU")
                self.record(load_format, "works", sorted(set(backends)), how)

    def test_arguments(self):
        source = self.source("gpt-oss", (384, 320))
        with tempfile.TemporaryDirectory() as parent:
            out = os.path.join(parent, "out")
            source.convert(out, "sglang", "marlin", "1", 1)
            for load_format in LOAD_FORMAT_CHOICES:
                with self.subTest(load_format=load_format):
                    if load_format in WORKS:
                        self.start_arguments(out, load_format=load_format)
                        continue
                    with self.assertRaises(Refused) as caught:
                        self.start_arguments(out, load_format=load_format)
                    self.assertIn(f"--load-format {load_format} (", str(caught.exception))
                    self.assertIn("Leave it out", str(caught.exception))
                    self.record(load_format, "refused", [], "SGLang's ServerArgs, without a GPU")
            with self.assertRaisesRegex(Refused, "--weight-cache-mode client"):
                self.start_arguments(out, weight_cache_mode="client")

    def test_every_format_is_known(self):
        self.assertEqual(arguments.LOAD_FORMATS, WORKS)

if __name__ == "__main__":
    print(f"SGLang {VERSION}, torch {torch.__version__}, python {sys.version.split()[0]}")
    unittest.main()
