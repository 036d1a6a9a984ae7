"""vLLM plugin: the quantization method `mxfp4_pack`, which serves outputs of `mxfp4-pack convert --engine vllm`.

vLLM calls `register` once in every process (entry point group vllm.general_plugins), before it reads a model's config.
vLLM's modules are imported in `register` at the earliest, and the method classes only for a packed model."""

from functools import lru_cache

from mxfp4_pack import METHOD


@lru_cache(maxsize=None)
def register():
    from vllm.model_executor.layers.quantization import register_quantization_config
    from vllm.model_executor.layers.quantization.base_config import QuantizationConfig

    @register_quantization_config(METHOD)
    class Dispatch(QuantizationConfig):
        """A placeholder for the method's class until `from_config` knows the model. vLLM keeps only the result of
        `from_config`."""
        model_type = None  # of the last config that vLLM has passed, just before from_config

        @classmethod
        def override_quantization_method(cls, hf_quant_cfg, user_quant, **kwargs):
            if not isinstance(hf_quant_cfg, dict) or hf_quant_cfg.get("quant_method") != METHOD:
                return None
            cls.model_type = getattr(kwargs.get("hf_config"), "model_type", None)
            return METHOD

        @classmethod
        def from_config(cls, config):
            from mxfp4_pack.vllm.quantization import packed_config
            return packed_config(config, cls.model_type)

        @classmethod
        def get_name(cls):
            return METHOD

        @classmethod
        def get_min_capability(cls):
            return 75

        @staticmethod
        def get_config_filenames():
            return []

        def get_supported_act_dtypes(self):
            raise NotImplementedError

        def get_quant_method(self, layer, prefix):
            raise NotImplementedError
