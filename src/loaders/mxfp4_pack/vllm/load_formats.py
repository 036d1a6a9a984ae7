"""--load-format: vLLM's loaders that serve packed experts, and the reasons why others cannot.

Facts about vLLM's loaders are from v0.33.0; tests/engines/vllm_load_formats.py runs them.
"""

from . import weight_cache

NO_FILES = "it reads none of the safetensors files of a packed directory"
SAVED = "it reads what vLLM saved of a model before the conversion of its experts"
# Formats that do not work, and why. vLLM's other formats give a model its tensors and convert its layers afterwards.
REASONS = {"pt": NO_FILES, "npcache": NO_FILES, "mistral": NO_FILES, "sharded_state": SAVED,
           "runai_streamer_sharded": SAVED,
           "tensorizer": "it does not convert the layers after loading, so that experts would stay empty"}


def refused(load_format, method):
    """{option with its reason: whether it is set} for the experts' method object."""
    return {f"--load-format {load_format} ({REASONS.get(load_format)})": load_format in REASONS,
            f"--load-format {load_format} ({weight_cache.REASON.format(method.packed.kernel)})":
            load_format == weight_cache.FORMAT and not weight_cache.is_supported(method)}
