"""The load formats of an installed vLLM with a packed layer, without a GPU: the rows of load_formats.json.

    VLLM_MARLIN_SOURCE=.. MXFP4_PACK=build/mxfp4-pack MXFP4_PACK_LIBRARY=build/libmxfp4_pack.so \
        PYTHONPATH=src/loaders:tests/loaders python3 tests/engines/vllm_load_formats.py

vLLM's own loader classes load a model of one expert layer, as in vllm_classes.py, beside the other tensors of a tiny
checkpoint. The layer must equal vLLM's own conversion, and the model must get every other tensor once; or the plugin
must refuse before anything is read. Replaced are, beside the parts that vllm_classes.py names:
- the function that creates a model, and torch's calls to an accelerator;
- GPU memory as the destination of fastsafetensors, and InstantTensor's iterator over the files that vLLM gives it;
- for tensorizer: whether its file is one that vLLM wrote;
- for ipc_cache: the socket between daemon and engine, and CUDA's handles, in whose place vLLM passes CPU tensors.
Libraries that are not installed (fastsafetensors, runai-model-streamer) leave their rows out, and so do formats that
do not match MXFP4_PACK_FORMATS.
"""

import itertools
import os
import re
import sys
import tempfile
import unittest
from contextlib import ExitStack
from importlib import util
from unittest import mock

import torch
from safetensors.torch import load_file
from vllm.config import set_current_vllm_config
from vllm.config.load import LoadConfig
from vllm.model_executor import model_loader
from vllm.model_executor.model_loader import base_loader, default_loader, tensorizer_loader, weight_utils
from vllm.model_executor.model_loader.weight_cache import daemon, ipc_loader, protocol

import cells
from format_model import Model, files_of
from mxfp4_pack import Refused
from mxfp4_pack.vllm import canary, load_formats, quantization
from vllm_classes import CASES, MARLIN_SOURCE, VERSION, Layers, Platform

WORKS = ("auto", "hf", "safetensors", "fastsafetensors", "instanttensor", "runai_streamer", "dummy", "ipc_cache")
NEEDS = {"fastsafetensors": "fastsafetensors", "runai_streamer": "runai_model_streamer"}
HOW = {"dummy": "zeros", "instanttensor": "files as vLLM gives them to InstantTensor", "modelexpress": "not run",
       "ipc_cache": "vLLM's daemon and client classes, CPU tensors in the place of CUDA's handles"}


class Formats(Layers):
    preloads = True  # for ipc_cache: whether a daemon loads the model first

    def exchange_loaders(self, make):
        for module in (base_loader, tensorizer_loader, ipc_loader):
            self.exchange(module, "initialize_model", make)
        self.exchange(torch.accelerator, "empty_cache", lambda: None)
        self.exchange(torch.accelerator, "current_device_index", lambda: 0)
        self.exchange(default_loader, "instanttensor_weights_iterator", files_of)
        self.exchange(ipc_loader, "check_ipc_platform_support", lambda: None)
        self.exchange(daemon, "init_workspace_manager", lambda device: None)
        self.exchange(tensorizer_loader, "is_vllm_tensorized", lambda config: False)
        self.exchange(weight_utils, "current_platform", Platform(current_device=0, is_cuda_alike=False))
        if util.find_spec("fastsafetensors"):
            from fastsafetensors import parallel_loader
            of = parallel_loader.ParallelLoader
            self.exchange(parallel_loader, "ParallelLoader",
                          lambda **given: of(**given | {"device": "cpu", "nogds": True}))

    def settings(self, out, load_format):
        vllm = canary.bare_config(torch.device("cpu"))
        vllm.load_config = LoadConfig(load_format=load_format, use_tqdm_on_load=False)
        if load_format == "tensorizer":
            vllm.load_config.model_loader_extra_config = {"tensorizer_config": {"tensorizer_uri": "file"}}
        vllm.model_config = mock.MagicMock(
            model=out, model_weights=None, revision=None, dtype=torch.bfloat16, quantization="mxfp4_pack", is_moe=True,
            multimodal_config=None, quantization_config=None, hf_config=None)
        return vllm

    def load(self, case, source, out, load_format):
        """(the model, the engine's own layer)"""
        self.exchange_platform(case.platform)
        self.exchange_kernels(case, source.family)
        self.exchange_choice(case, source.pairs)
        quantization.canaries_passed.clear()
        number, share = source.rank(1, 0)
        experts = share["w13", "codes"].shape[0]
        packed, _ = self.configs(out)
        made = []

        def make(vllm_config=None, **given):
            with set_current_vllm_config(vllm_config):
                made.append(Model(self.layer(packed, source, number, experts, 1, 0)))
            return made[-1]

        self.exchange_loaders(make)
        vllm = self.settings(out, load_format)
        try:
            with set_current_vllm_config(vllm):
                if load_format == "ipc_cache":
                    return self.attach(vllm, self.preload(out) if self.preloads else None)
                return model_loader.get_model_loader(vllm.load_config).load_model(vllm_config=vllm, model_config=vllm.model_config)
        finally:
            self.layers_made = made

    def preload(self, out):
        """The model of a daemon, which vLLM's own class loads."""
        holder = object.__new__(daemon.WeightCacheDaemon)
        holder.vllm_config = self.settings(out, "auto")
        holder.model_config = holder.vllm_config.model_config
        with set_current_vllm_config(holder.vllm_config):
            return holder.get_model()

    def attach(self, vllm, model):
        """The model of an engine that maps a daemon's model; None: a daemon that holds nothing."""
        entries, aliases = daemon.export_entries(model) if model else ({}, {})
        state = protocol.WeightCacheState(entries, aliases, {})
        loader = model_loader.get_model_loader(vllm.load_config)
        loader.fallback = False
        with mock.patch.object(loader, "_fetch_entries", lambda *given: state), mock.patch.object(loader, "_watch_daemon"):
            mapped = loader.load_model(vllm_config=vllm, model_config=vllm.model_config)
        mapped.others = model.others
        return mapped

    def engines_layer(self, source, out):
        """As vLLM converts it itself."""
        with ExitStack() as self.stack:
            case = self.case
            self.exchange_platform(case.platform)
            self.exchange_kernels(case, source.family)
            quantization.canaries_passed.clear()
            return self.both_layers(case, source, 1, 0, out)[1]

    def zeros(self, layer):
        for name, parameter in layer.named_parameters():
            self.assertFalse(parameter.view(torch.uint8).any(), name)

    def works(self, load_format, family, backend):
        self.case = case = next(case for case in CASES if case.backend == backend and case.layout != "file")
        source = self.source(family, case.sizes)
        with tempfile.TemporaryDirectory() as parent:
            out = os.path.join(parent, "out")
            source.convert(out, "vllm", case.backend, case.layout, 1)
            with ExitStack() as self.stack:
                model = self.load(case, source, out, load_format)
            if load_format == "dummy":
                return self.zeros(model.experts)
            rest = [name for file in os.listdir(out) if file.startswith("rest-") for name in load_file(os.path.join(out, file))]
            self.assertEqual(sorted(model.others), sorted(rest))
            self.compare(model.experts, self.engines_layer(source, out), case.layout == "c")

    def refused(self, load_format, family, backend, message):
        case = next(case for case in CASES if case.backend == backend and case.layout != "file")
        source = self.source(family, case.sizes)
        with tempfile.TemporaryDirectory() as parent:
            out = os.path.join(parent, "out")
            source.convert(out, "vllm", case.backend, case.layout, 1)
            with ExitStack() as self.stack, self.assertRaises(Refused) as caught:
                self.load(case, source, out, load_format)
            self.assertIn(f"packed MXFP4 experts cannot be served with --load-format {load_format} ({message}",
                          str(caught.exception))
            self.assertEqual(self.layers_made, [])

    def record(self, load_format, result, backends):
        how = HOW.get(load_format, "vLLM's own loader class, without a GPU")
        cells.record({"engine": "vllm", "version": VERSION, "format": load_format, "shown": result,
                      "backends": backends, "how": f"{how} (vllm_load_formats.py)"})

    def test_formats_that_work(self):
        for load_format in filter(re.compile(os.environ.get("MXFP4_PACK_FORMATS", ".*")).fullmatch, WORKS):
            if load_format in NEEDS and not util.find_spec(NEEDS[load_format]):
                print(f"left out: {load_format}, {NEEDS[load_format]} is not installed")
                continue
            backends = ["marlin"] * bool(MARLIN_SOURCE) + ["triton-hopper"] * (load_format != "ipc_cache")
            loaded = []
            for backend, family in itertools.product(backends, ("gpt-oss", "deepseek-v4")):
                with self.subTest(load_format=load_format, backend=backend, family=family):
                    self.works(load_format, family, backend)
                    loaded.append(backend)
            if len(loaded) == 2 * len(backends):
                self.record(load_format, "works", backends)

    def test_formats_that_are_refused(self):
        for load_format, reason in load_formats.REASONS.items():
            with self.subTest(load_format=load_format):
                for family in ("gpt-oss", "deepseek-v4"):
                    self.refused(load_format, family, "triton-hopper", reason)
                self.record(load_format, "refused", [])

    def test_objects_that_a_daemon_cannot_pass(self):
        for family in ("gpt-oss", "deepseek-v4"):
            with self.assertRaisesRegex(protocol.UnsupportedQuantForIPCError, "does not support loading from pre-processed"):
                self.works("ipc_cache", family, "triton-hopper")  # vllm preload refuses it
            with mock.patch.object(Formats, "preloads", False):
                self.refused("ipc_cache", family, "triton-hopper", "its daemon passes parameters only")

    def test_every_format_has_a_row(self):
        known = {*WORKS, *load_formats.REASONS, "modelexpress"}
        self.assertEqual(set(model_loader._LOAD_FORMAT_TO_MODEL_LOADER), known)


if __name__ == "__main__":
    print(f"vLLM {VERSION}, torch {torch.__version__}, python {sys.version.split()[0]}")
    unittest.main()
