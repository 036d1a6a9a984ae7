"""vLLM's method for compressed-tensors, whose conversion changes the layer, against stand-ins of the engine's classes."""

import sys
import unittest
from types import ModuleType, SimpleNamespace
from unittest import mock

from test_vllm import quantization  # with the stand-ins installed
from mxfp4_pack.vllm import conversion


class InPlace(unittest.TestCase):
    """A method whose conversion function changes the layer: vLLM's for compressed-tensors."""

    def setUp(self):
        self.engine = ModuleType("engine_in_place")
        self.engine.prepare_moe_fp4_layer_for_marlin = self.original = lambda layer: vars(layer).update(w2_weight="made")
        self.enterContext(mock.patch.dict(sys.modules, {"engine_in_place": self.engine}))
        self.method = quantization.packed_class(type("Method", (), {"__module__": "engine_in_place"}))()

    def test_it_is_called_as_the_others(self):
        def replacement(original, layer, **given):
            self.assertEqual((given["w13_weight"], given["w2_bias"]), ("raw", None))
            probe = SimpleNamespace(w13_weight="canary")
            self.assertEqual(original(layer=probe, **given)[:3], ("canary", "made", None))
            return "codes", "codes of w2", "scales", None, None, None

        layer = SimpleNamespace(w13_weight="raw")
        with conversion.exchanged(self.method, replacement):
            self.engine.prepare_moe_fp4_layer_for_marlin(layer)
        self.assertEqual(vars(layer), {"w13_weight": "codes", "w2_weight": "codes of w2", "w13_weight_scale": "scales"})
        self.assertIs(self.engine.prepare_moe_fp4_layer_for_marlin, self.original)

    def test_any_model_may_be_compressed_tensors(self):
        class Config:
            from_config = classmethod(lambda cls, source: cls())

        with mock.patch.object(quantization, "get_quantization_config", {"compressed-tensors": Config}.get), \
                mock.patch.object(quantization.engine, "Mxfp4Config", "plain", create=True):
            for model_type, base in (("qwen3_moe", Config), ("kimi_k3", "plain")):
                source = {"quant_method": "compressed-tensors"}
                self.assertIs(quantization.engine_config(source, model_type), base)


if __name__ == "__main__":
    unittest.main()
