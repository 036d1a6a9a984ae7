"""What SGLang's options meet of it, as in v0.5.17: the map of experts and the offloader; and what stages a layer."""

from contextlib import contextmanager
from types import SimpleNamespace

import torch

placed = SimpleNamespace(map=None)  # the logical expert of each physical one, by layers; None: SGLang has none
offloaders = SimpleNamespace(current=None)


def get_global_expert_location_metadata():
    if placed.map is None:
        return None
    table = torch.tensor(placed.map)
    return SimpleNamespace(physical_to_logical_map_cpu=table, num_physical_experts=table.shape[1],
                           num_logical_experts=len(table[0].unique()))


@contextmanager
def device_loading_context(module, target_device):
    """As of 0.5.19 and 0.5.20 on a GPU."""
    if any(parameter.is_meta for parameter in module.parameters()):
        raise RuntimeError("Cannot post-process meta tensor")
    yield module


def buffered_multi_thread_safetensors_weights_iterator(files, max_workers, disable_mmap=False, prefetch=False,
                                                       prefetch_num_threads=4, drop_cache_after_load=False):
    yield files, max_workers, disable_mmap, prefetch, drop_cache_after_load


def get_offloader():
    return offloaders.current


class OffloaderV1:
    def __init__(self, cpu_offload_max_bytes):
        self._cpu_offload_bytes, self._cpu_offload_max_bytes = 0, cpu_offload_max_bytes
        self.wrapped = []  # modules whose forward copies parameters to the GPU

    def maybe_offload_to_cpu(self, module):
        """An assertion in the place of torch's error, and the names in the place of moving."""
        moved = False
        for _, parameter in module.named_parameters():
            if self._cpu_offload_bytes < self._cpu_offload_max_bytes:
                assert not parameter.is_meta
                self._cpu_offload_bytes += parameter.nbytes
                moved = True
        self.wrapped += [module] if moved else []
        return module


def _export_static_state(model):
    return {"buffers": [(name, buffer.detach().clone()) for name, buffer in model.named_buffers()]}


def _import_static_state(model, static_params):
    for name, tensor in static_params["buffers"]:
        dict(model.named_buffers())[name][...] = tensor


LOADER = device_loading_context, buffered_multi_thread_safetensors_weights_iterator


def modules(srt):
    """The modules of SGLang in which the loader looks for the stand-ins."""
    updater = srt + ".managers.scheduler_components.weight_updater"
    return {srt + ".managers": [], updater.rpartition(".")[0]: [], updater: [_export_static_state, _import_static_state],
            srt + ".eplb": [], srt + ".eplb.expert_location": [get_global_expert_location_metadata],
            srt + ".utils.offloader": [OffloaderV1, get_offloader]}
