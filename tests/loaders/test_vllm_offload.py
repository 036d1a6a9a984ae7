"""vLLM's options that move weights to the host or wrap expert layers, in stand-ins of its classes."""

import sys
from types import ModuleType, SimpleNamespace
from unittest import main, mock

import torch

import mxfp4_pack
from golden import same
from mxfp4_pack import Refused
from vllm_case import VllmCase, gpt_oss, held, vllm

MOVED = "_vllm_is_uva_offloaded"


class UVAOffloader:
    """Like vLLM's class: moves parameters up to a limit of bytes. An assertion replaces torch's error."""

    def __init__(self, bytes_at_most, asked=()):
        self.cpu_offload_bytes, self.cpu_offload_max_bytes, self.cpu_offload_params = 0, bytes_at_most, set(asked)
        self.moved = []

    def _maybe_offload_to_cpu(self, module):
        for name, parameter in module.named_parameters():
            assert not parameter.is_meta
            if self.cpu_offload_bytes < self.cpu_offload_max_bytes:
                self.moved.append(name)
                self.cpu_offload_bytes += parameter.nbytes
        return module


class PrefixedOffloader(UVAOffloader):
    """Like the class of vLLM 0.33.0, which also gets the module's name."""

    def _maybe_offload_to_cpu(self, module, prefix=""):
        self.prefix = prefix
        return super()._maybe_offload_to_cpu(module)


class Options(VllmCase):
    def setUp(self):
        super().setUp()
        self.offloader = type("UVAOffloader", (UVAOffloader,), {})
        self.envs = SimpleNamespace(VLLM_WEIGHT_OFFLOADING_DISABLE_UVA=False)
        modules = {"vllm.model_executor.offloader": {}, "vllm.model_executor.offloader.uva": {"UVAOffloader": self.offloader},
                   "vllm.utils": {}, "vllm.utils.platform_utils": {"is_uva_available": lambda: True}}
        for name, members in modules.items():
            module = ModuleType(name)
            vars(module).update(members)
            self.enterContext(mock.patch.dict(sys.modules, {name: module}))
        self.enterContext(mock.patch.object(sys.modules["vllm"], "envs", self.envs, create=True))

    def served(self, offloader, *prefix, backend="marlin"):
        """(a layer whose block has another parameter, with memory; the parameters that were marked as moved)"""
        checkpoint, marked = gpt_oss(backend), {}

        def wrap(layers):
            layer, = layers.values()
            block = torch.nn.Module()
            block.norm = torch.nn.Parameter(torch.zeros(4))
            block.experts = torch.nn.Module()
            block.experts._parameters = layer._parameters
            before = dict(layer._parameters)
            self.assertIs(offloader._maybe_offload_to_cpu(block, *prefix), block)
            self.assertIs(offloader._maybe_offload_to_cpu(block, *prefix), block)  # again, as vLLM may
            self.assertEqual({name: id(p) for name, p in layer._parameters.items()}, {name: id(p) for name, p in before.items()})
            marked.update({name: hasattr(p, MOVED) for name, p in before.items()})

        layer = self.serve(checkpoint, before_processing=wrap, cpu_offload_gb=1)
        expected = checkpoint.expected(("model", 0))
        for key in layer.quant_method.entries:
            same(self, held(layer, key), expected[key], key)
        return layer, marked

    def test_layers_without_memory_are_marked_and_the_rest_is_moved(self):
        offloader = self.offloader(1 << 30)
        layer, marked = self.served(offloader)
        self.assertTrue(all(marked.values()) and len(marked) == 6)
        self.assertEqual(offloader.moved, ["norm", "norm"])  # the stand-in does not see that it was
        self.assertGreater(offloader.cpu_offload_bytes, 16)

    def test_what_is_read_is_not_marked_so_that_vllm_moves_it(self):
        layer, _ = self.served(self.offloader(1 << 30))
        self.assertFalse(any(hasattr(p, MOVED) for p in layer.parameters()))
        self.assertEqual(layer.quant_method.held, {})
        with self.assertRaisesRegex(Refused, "moved its weights after they were read"):
            vllm.current.model.reload_weights(self.directory)

    def test_no_more_is_marked_than_so_many_bytes(self):
        _, marked = self.served(self.offloader(1))
        self.assertEqual(sum(marked.values()), 1)

    def test_names_choose_what_is_marked(self):
        _, marked = self.served(self.offloader(1 << 30, ["w2_weight"]))
        self.assertEqual([name for name, is_marked in marked.items() if is_marked], ["w2_weight"])

    def test_names_begin_with_the_modules(self):
        self.offloader = type("UVAOffloader", (PrefixedOffloader,), {})
        sys.modules["vllm.model_executor.offloader.uva"].UVAOffloader = self.offloader
        offloader = self.offloader(1 << 30, ["layers.0.experts.w2_weight", "layers.1.experts.w13_weight"])
        _, marked = self.served(offloader, "model.layers.0.")
        self.assertEqual([name for name, is_marked in marked.items() if is_marked], ["w2_weight"])
        self.assertEqual(offloader.prefix, "model.layers.0.")

    def test_without_uva_it_is_refused(self):
        self.envs.VLLM_WEIGHT_OFFLOADING_DISABLE_UVA = True
        with self.assertRaisesRegex(Refused, "VLLM_WEIGHT_OFFLOADING_DISABLE_UVA"):
            self.served(self.offloader(1 << 30))

    def test_under_lora_experts_are_served_and_not_replaced(self):
        layer = self.serve(gpt_oss("marlin"), lora_config=object())
        layer.quant_method = SimpleNamespace(old_quant_method=layer.quant_method)  # as vLLM wraps it then
        for change in (lambda: vllm.current.model.reload_weights(self.directory),
                       lambda: mxfp4_pack.update(vllm.current.model, [], [])):
            with self.assertRaisesRegex(Refused, "which adds LoRA"):
                change()


if __name__ == "__main__":
    main()
