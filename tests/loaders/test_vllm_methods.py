"""Which method the vLLM loader gives a layer of experts, against stand-ins of the engine's classes."""

import os
import tempfile
import unittest
from unittest import mock

import vllm_stand_in as vllm
from mxfp4_pack import Refused
from packed_dir import deepseek

vllm.install()
import mxfp4_pack.vllm  # noqa: E402
from mxfp4_pack.vllm import quantization  # noqa: E402

mxfp4_pack.vllm.register()
PREFIX = "model.layers.{}.ffn.experts"


class Methods(unittest.TestCase):
    def setUp(self):
        self.directory = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "out")
        self.checkpoint = deepseek("vllm", "marlin", None)
        self.checkpoint.write(self.directory)
        quantization.canaries_passed.clear()

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

        both = [PREFIX.format(0), PREFIX.format(1)]
        with mock.patch.object(vllm.DeepseekV4FP8Config, "get_quant_method", method_of):
            made = vllm.serve(self.directory, self.checkpoint, both, swiglu_limit=10.0)
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

        with (mock.patch.object(vllm, "RoutedExperts", MuseSparkRoutedExperts),
              self.assertRaisesRegex(Refused, "MuseSparkRoutedExperts takes a method of its own")):
            vllm.serve(self.directory, self.checkpoint, [PREFIX.format(0)], swiglu_limit=10.0)


if __name__ == "__main__":
    unittest.main()
