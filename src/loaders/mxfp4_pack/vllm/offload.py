"""CPU offload: vLLM keeps some parameters in the host's memory, and the GPU reads them there.

vLLM moves unpacked parameters while it builds a model, and later the parameters that replace them in a conversion.
Unpacked parameters of packed layers have no memory to move. They are only marked, so that vLLM moves the packed tensors
that replace them.
"""

from functools import wraps

MARK = "_vllm_is_uva_offloaded"  # an attribute of vLLM


def install():
    """Whether vLLM moves parameters in this way."""
    try:
        from vllm import envs
        from vllm.model_executor.offloader.uva import UVAOffloader
        from vllm.utils.platform_utils import is_uva_available
    except ImportError:
        return False
    move = UVAOffloader._maybe_offload_to_cpu
    if not hasattr(move, "__wrapped__"):
        UVAOffloader._maybe_offload_to_cpu = around(move)
    return is_uva_available() and not envs.VLLM_WEIGHT_OFFLOADING_DISABLE_UVA


def around(original):
    @wraps(original)
    def move(offloader, module, prefix=""):  # vLLM 0.26.0 has no `prefix`
        without_memory = [(owner, name, parameter) for owner in module.modules()
                          for name, parameter in owner._parameters.items() if parameter is not None and parameter.is_meta]
        for owner, name, parameter in without_memory:
            if (offloader.cpu_offload_bytes < offloader.cpu_offload_max_bytes and not hasattr(parameter, MARK)
                    and is_asked(offloader, module, prefix, parameter)):
                setattr(parameter, MARK, True)
                offloader.cpu_offload_bytes += parameter.nbytes
            del owner._parameters[name]
        try:
            return original(offloader, module, *([prefix] if prefix else []))
        finally:
            for owner, name, parameter in without_memory:
                owner._parameters[name] = parameter
    return move


def is_asked(offloader, module, prefix, parameter):
    """Whether --cpu-offload-params selects a parameter: its name must contain one of the given parts. Without the
    option all parameters are selected."""
    names = [name for name, other in module.named_parameters() if other is parameter]
    return not offloader.cpu_offload_params or any(f".{part}." in f".{prefix}{name}." for name in names
                                                   for part in offloader.cpu_offload_params)


def is_moved(layer):
    """Whether vLLM will move parameters of the layer to the host."""
    return any(getattr(parameter, MARK, False) for parameter in layer.parameters())
