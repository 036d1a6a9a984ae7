"""Which method the vLLM loader gives a layer of experts, and how it replaces a conversion in place, against stand-ins of
the engine's classes."""

import sys
from types import ModuleType, SimpleNamespace
from unittest import TestCase, main, mock

from mxfp4_pack.vllm import conversion
from vllm_case import DEEPSEEK, VllmCase, deepseek, quantization, vllm


class Methods(VllmCase):
    def test_a_layer_of_another_precision_keeps_the_engines_method(self):
        """Also its choice of a kernel. Such a layer has no packed experts; a layer that the engine takes for MXFP4 has."""
        engines = vllm.DeepseekV4FP8Config.get_quant_method
        asked = {}

        class OfBF16:
            def maybe_roundup_sizes(self, hidden, intermediate, *_):
                return hidden, intermediate

            def create_weights(self, **_):
                pass

            def process_weights_after_loading(self, layer):
                pass

        def method_of(config, layer, prefix):
            asked[prefix] = getattr(getattr(layer, "moe_config", None), "moe_backend", None)
            return OfBF16() if ".1." in prefix else engines(config, layer, prefix)

        both = [DEEPSEEK.format(0), DEEPSEEK.format(1)]
        with mock.patch.object(vllm.DeepseekV4FP8Config, "get_quant_method", method_of):
            made = self.serve_all(deepseek("marlin"), both, swiglu_limit=10.0)
        self.assertIsInstance(made[both[0]].quant_method, quantization.PackedMethod)
        self.assertIsInstance(made[both[1]].quant_method, OfBF16)
        self.assertEqual([asked[prefix] for prefix in both], ["marlin", "auto"])

    def test_the_method_under_vllms_own_name(self):
        with mock.patch.object(quantization, "get_quantization_config") as engines:
            quantization.engine_config({"quant_method": "gpt_oss_mxfp4"}, "openai_privacy_filter")
        engines.assert_called_once_with("gpt_oss_mxfp4")

    def test_a_class_with_a_method_of_its_own_is_refused(self):
        class MuseSparkRoutedExperts(vllm.RoutedExperts):
            def _get_quant_method(self, *_):
                pass

        with mock.patch.object(vllm, "RoutedExperts", MuseSparkRoutedExperts):
            self.refuses("MuseSparkRoutedExperts takes a method of its own", deepseek("marlin"), DEEPSEEK.format(0))


class InPlace(TestCase):
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
    main()
