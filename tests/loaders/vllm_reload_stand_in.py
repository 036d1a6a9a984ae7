"""A small stand-in for vLLM 0.26.0's reload of a running model (model_executor/model_loader). Unpacked parameters
replace a layer's own, are filled, converted and copied into the originals."""

import os
import re
from dataclasses import dataclass, field
from types import SimpleNamespace

import torch
from safetensors.torch import load_file
from torch.nn import Module, ModuleList

LAYERWISE_INFO = {}


@dataclass
class LayerReloadingInfo:
    restore_metadata: tuple
    restore_device: torch.device
    load_numel: int = 0
    load_numel_total: int | None = None
    loaded_weights: list = field(default_factory=list)
    kernel_tensors: tuple | None = None

    def reset(self):
        self.__init__(restore_metadata=self.restore_metadata, restore_device=self.restore_device)

    def can_load(self):
        return self.load_numel_total is not None


def record_metadata_for_reloading(model):
    for layer in model.modules():
        LAYERWISE_INFO[layer] = LayerReloadingInfo(({}, {}), torch.empty(0).device)


def initialize_layerwise_reload(model):
    for layer in model.modules():
        info = LAYERWISE_INFO[layer]
        if not info.can_load():
            info.kernel_tensors = dict(layer._parameters)
            info.load_numel_total = 0
            layer._parameters.clear()


def finalize_layerwise_reload(model):
    for layer in model.modules():
        info = LAYERWISE_INFO[layer]
        if not info.can_load():
            continue
        if info.kernel_tensors is None:
            if getattr(layer, "quant_method", None) is not None:
                layer.quant_method.process_weights_after_loading(layer)
        else:
            layer._parameters.update(info.kernel_tensors)
        info.reset()


class BaseModelLoader:
    pass


class DefaultModelLoader(BaseModelLoader):
    def get_all_weights(self, model_config, model):
        for name in sorted(os.listdir(model_config.model)):
            if name.endswith(".safetensors"):
                yield from load_file(os.path.join(model_config.model, name)).items()


class Model(Module):
    """The expert layers, and the other loaded weights."""

    def __init__(self, layers):
        super().__init__()
        self.layers, self.others = ModuleList(layers), {}

    def load_weights(self, weights):
        self.others.update(weights)
        return set(self.others)

    def reload_weights(self, directory):
        """As the model runner does."""
        weights = DefaultModelLoader().get_all_weights(SimpleNamespace(model=directory), self)
        self.update_weights(weights)

    def update_weights(self, weights):
        """As a weight transfer engine does, from start_weight_update to finish_weight_update."""
        initialize_layerwise_reload(self)
        self.load_weights(weights)
        finalize_layerwise_reload(self)


def safetensors_weights_iterator(hf_weights_files, use_tqdm_on_load, safetensors_load_strategy=None, local_expert_ids=None):
    """In place of vLLM's: what it was called with."""
    return iter([(hf_weights_files, use_tqdm_on_load, safetensors_load_strategy, local_expert_ids)])


def _natural_sort_key(path):
    return [int(s) if s.isdigit() else s for s in re.split(r"(\d+)", path)]


MODULES = {"default_loader": {"safetensors_weights_iterator": safetensors_weights_iterator},
           "weight_utils": {"_natural_sort_key": _natural_sort_key}, "base_loader": {"BaseModelLoader": BaseModelLoader},
           "utils": {"record_metadata_for_reloading": record_metadata_for_reloading},
           "reload": {}, "reload.types": {"LayerReloadingInfo": LayerReloadingInfo},
           "reload.layerwise": {"LAYERWISE_INFO": LAYERWISE_INFO}}
