"""A model that vllm_load_formats.py and sglang_load_formats.py load, and an iterator over files like InstantTensor's."""

import torch
from safetensors import safe_open


class Model(torch.nn.Module):
    """One expert layer and the names of all other tensors."""

    def __init__(self, experts):
        super().__init__()
        self.experts, self.others = experts, []

    def load_weights(self, weights):
        self.others += [name for name, _ in weights]


def files_of(hf_weights_files, *args, **given):
    for path in hf_weights_files:
        with safe_open(path, "pt") as file:
            yield from ((name, file.get_tensor(name)) for name in file.keys())
