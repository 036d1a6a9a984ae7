"""An installed vLLM's own reload of a running model's weights, without a GPU. For vLLM 0.33.0; in 0.26.0 the reload is
a part of the model runner, which vllm_live.py tests on a GPU.

    MXFP4_PACK=build/mxfp4-pack MXFP4_PACK_LIBRARY=build/libmxfp4_pack.so PYTHONPATH=src/loaders:tests/loaders \
        python3 tests/engines/vllm_reload.py

A packed layer and a parameter that is not packed are loaded. They are then loaded again from the same output, from
another output and from an original checkpoint, by vllm.model_executor.model_loader.reload.inplace, DefaultModelLoader
and process_weights_after_loading. Each time the layer must hold the new bytes in its previous tensors. The replaced
parts are those of vllm_classes.py.
"""

import os
import tempfile
import unittest
from contextlib import ExitStack
from types import SimpleNamespace

import torch
from safetensors import safe_open
from vllm.config import set_current_vllm_config
from vllm.config.load import LoadConfig
from vllm.model_executor.model_loader import utils
from vllm.model_executor.model_loader.reload.inplace import reload_weights
from vllm.model_executor.model_loader.weight_utils import default_weight_loader

import cells
from mxfp4_pack.packed_set import flat
from mxfp4_pack.vllm import canary, live, quantization
from vllm_classes import CASES, Layers

ASKED = ("marlin", "triton-hopper", "humming", "flashinfer-cutlass", "deepgemm")
NORM = "model.norm.weight"


class Model(torch.nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.experts, self.norm = experts, torch.nn.Module()
        self.norm.weight = torch.nn.Parameter(torch.empty(0), requires_grad=False)

    def load_weights(self, weights):
        """As the engine's models do; experts are loaded by none of their own parameters here."""
        for name, tensor in weights:
            if name == NORM:
                loader = getattr(self.norm.weight, "weight_loader", default_weight_loader)
                loader(self.norm.weight, tensor)
        return {NORM}


class Reload(Layers):
    def test_reloads(self):
        for case in CASES:
            if case.backend in ASKED and cells.is_asked(case) and case.layout != "c" and not case.families:
                family = "gpt-oss" if case.members[0] else "deepseek-v4"
                with self.subTest(backend=case.backend, family=family), tempfile.TemporaryDirectory() as self.parent_of_outs:
                    self.reloads(case, family)

    def outputs(self, case, family):
        """{seed: (checkpoint, output)}"""
        found = {}
        for seed in (1, 2):
            raw, out = (os.path.join(self.parent_of_outs, f"{kind}{seed}") for kind in ("raw", "out"))
            hidden, intermediate = case.sizes
            cells.run("synth", cells.MODELS[family], raw, "--tiny", "--hidden", hidden, "--intermediate", intermediate,
                      "--seed", seed)
            cells.run("convert", raw, out, "--engine", "vllm", "--backend", case.backend, "--layout-version", case.layout)
            found[seed] = raw, out
        return found

    def reloads(self, case, family):
        outs = self.outputs(case, family)
        source = self.source(family, case.sizes)
        quantization.canaries_passed.clear()
        with ExitStack() as self.stack:
            self.as_on_a_gpu(case, family)
            config = canary.bare_config(torch.device("cpu"))
            config.load_config = LoadConfig(load_format="safetensors")
            config.model_config = SimpleNamespace(model=outs[1][1], model_weights="", revision=None, dtype=torch.bfloat16,
                                                  quantization="mxfp4_pack", quantization_config=None, hf_config=None,
                                                  word_embeddings_untied_by_checkpoint=False)
            with set_current_vllm_config(config), torch.device("cpu"):
                number, share = source.rank(1, 0)
                packed, _ = self.configs(outs[1][1])
                model = Model(self.layer(packed, source, number, share["w13", "codes"].shape[0], 1, 0))
                model.norm.weight.data = torch.empty_like(norm_of(outs[1][0]))
                utils.record_metadata_for_reloading(model)
                model.norm.weight.data.copy_(norm_of(outs[1][0]))
                utils.process_weights_after_loading(model, config.model_config, torch.device("cpu"))
                self.holds(model, outs[1])
                addresses = {key: t.data_ptr() for key, t in model.experts.quant_method.held.items()}
                raw = [2] if "MXFP4_PACK_LIBRARY" in os.environ else []
                for seed, path in [(1, None), *((seed, outs[seed][1]) for seed in (2, 1)), *((s, outs[s][0]) for s in raw)]:
                    reload_weights(config, model, None, path, True)
                    self.holds(model, outs[seed])
                    self.assertEqual(addresses, {key: t.data_ptr() for key, t in model.experts.quant_method.held.items()})
                    self.assertTrue(live.is_kept(model.experts, model.experts.quant_method))

    def holds(self, model, out):
        checkpoint, directory = out
        self.assertTrue(torch.equal(model.norm.weight, norm_of(checkpoint)))
        method = model.experts.quant_method
        for key, entry in method.entries.items():
            with safe_open(os.path.join(directory, entry.file), "pt") as file:
                want = file.get_tensor(entry.name)
            self.assertTrue(torch.equal(flat(method.held[key]), want.reshape(-1).view(torch.uint8)), key)


def norm_of(checkpoint):
    for name in sorted(os.listdir(checkpoint)):
        if name.endswith(".safetensors"):
            with safe_open(os.path.join(checkpoint, name), "pt") as file:
                if NORM in file.keys():
                    return file.get_tensor(NORM)
    raise AssertionError(f"{checkpoint} has no {NORM}")


if __name__ == "__main__":
    unittest.main()
