"""Makes testdata/golden/layer_vllm_triton_rocm.safetensors and layer_vllm_triton_rocm_strided.safetensors: a random
layer of pairs, and its conversion by vLLM for triton_kernels on ROCm, run on a CPU. usage: triton_rocm_golden.py
OUT-DIRECTORY

Needs vLLM's Python. The first file is made by vLLM 0.33.0 where triton_kernels 3.8 is on the path, the second by 0.30.0,
which brings 3.5.1. Exchanged are only questions about the GPU and the number of ranks."""
import sys
from contextlib import ExitStack
from importlib import util
from types import SimpleNamespace
from unittest import mock

import torch
from torch.nn import Parameter
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.oracle import mxfp4 as oracle
from vllm.utils.import_utils import import_triton_kernels

import vllm_rocm
from golden_layer import EXPERTS, fill, random_layer, write

HIDDEN, INTERMEDIATE = 96, 160
PARTS = "w13", "w2", "w13_scale", "w2_scale", "w13_bias", "w2_bias"
ROCM = SimpleNamespace(is_rocm=lambda: True, is_cuda=lambda: False, is_xpu=lambda: False, is_cpu=lambda: False)
# Of the layout versions: the GPU, and the number of ranks.
FORMS = {"cdna4": ("gfx950", 2), "transposed": ("gfx942", 1), "strided": ("gfx950", 4)}


def loaded(raw, hidden, intermediate):
    """As vLLM's weight loader leaves the layer."""
    shapes = {"w13": (2 * intermediate, hidden // 2), "w2": (hidden, intermediate // 2),
              "w13_scale": (2 * intermediate, hidden // 32), "w2_scale": (hidden, intermediate // 32),
              "w13_bias": (2 * intermediate,), "w2_bias": (hidden,)}
    layer = {name: Parameter(torch.zeros((EXPERTS, *shape), dtype=raw[name].dtype), requires_grad=False)
             for name, shape in shapes.items()}
    for name, parameter in layer.items():
        if name.endswith("bias"):
            parameter.data[:, :raw[name].shape[1]] = raw[name]
        else:
            fill(parameter, raw[name], False)
    return layer


def in_memory(thing):
    """The bytes of a conversion's result: a tensor, a tensor of triton_kernels or a PrecisionConfig that holds one."""
    if not isinstance(thing, torch.Tensor):
        storage = getattr(thing, "storage", None)
        storage = storage or next(value.storage for value in vars(thing).values() if hasattr(value, "storage"))
        thing = storage.data
        order = sorted(range(thing.ndim), key=thing.stride, reverse=True)
        thing = thing.permute(order)
    assert thing.is_contiguous()
    return thing


def converted(raw, version):
    gpu, ranks = FORMS[version]
    with ExitStack() as stack:
        def exchange(target, name, value):
            stack.enter_context(mock.patch.object(target, name, value))
        vllm_rocm.exchange_rocm(exchange, stack, gpu, ranks, ROCM)
        sizes = oracle.mxfp4_round_up_hidden_size_and_intermediate_size(
            oracle.Mxfp4MoeBackend.TRITON, HIDDEN, INTERMEDIATE, activation=MoEActivation.SWIGLUOAI)
        layer = loaded(raw, *sizes)
        module = torch.nn.Module()
        for part in PARTS[:4]:
            module.register_parameter(part.replace("w13", "w13_weight").replace("w2", "w2_weight"), layer[part])
        made = oracle.convert_gpt_oss_weight_to_mxfp4_moe_kernel_format(
            oracle.Mxfp4MoeBackend.TRITON, module, *(layer[part] for part in PARTS))
    return {f"vllm.triton_rocm_{version}.{part}": in_memory(thing) for part, thing in zip(PARTS, made)}


def main(directory):
    import_triton_kernels()
    newest = util.find_spec("triton_kernels.matmul") is not None  # 3.8's name for matmul_ogs
    torch.manual_seed(1)
    raw, made = random_layer(HIDDEN, INTERMEDIATE, True), {}
    for version in ("cdna4", "transposed") if newest else ("strided",):
        made |= converted(raw, version)
    write(directory, "vllm_triton_rocm" + ("" if newest else "_strided"), "pairs", raw, made, HIDDEN, INTERMEDIATE)


if __name__ == "__main__":
    main(sys.argv[1])
