"""Both engines' conversions to Humming with the packed tensors in them, on stand-ins of the functions that meet."""

import sys
import unittest
from types import ModuleType, SimpleNamespace
from unittest import mock

import torch

from mxfp4_pack.sglang import conversion, humming as sglang_humming
from mxfp4_pack.vllm import humming

META, DEVICE = torch.device("meta"), torch.device("cpu")
PACKED = {(role, part): torch.full((1,), float(number)) for number, (role, part) in enumerate(
    (role, part) for role in ("w13", "w2") for part in ("codes", "scales", "residual"))}


def module(name, **members):
    made = ModuleType(name)
    vars(made).update(members)
    return made


class Humming(unittest.TestCase):
    def setUp(self):
        self.original = lambda **given: self.fail("it transformed")
        self.library = module("vllm.utils.humming", prepare_and_transform_humming_tensors=self.original)
        transform = module("humming.transform", prepare_layer_config=lambda **given: SimpleNamespace(**given))
        modules = {m.__name__: m for m in (module("vllm.utils", humming=self.library), self.library, module("humming"),
                                           transform)}
        self.enterContext(mock.patch.dict(sys.modules, {"vllm": module("vllm")} | modules))

    def convert(self, n):
        """A role's part of vLLM's conversion."""
        raw = {"weight": torch.empty(n, 4, device=META)}
        return self.library.prepare_and_transform_humming_tensors(tensors=raw, shape_n=n, device=META)

    def test_each_role_gets_its_tensors_and_a_description_of_its_own_sizes(self):
        with humming.giving(PACKED, DEVICE):
            made = [self.convert(n) for n in (64, 32)]
        for (config, tensors), n, role in zip(made, (64, 32), ("w13", "w2")):
            self.assertEqual((config.shape_n, config.device), (n, DEVICE))
            self.assertEqual(set(tensors), {"weight", "weight_scale", "weight_scale_2"})
            for part, name in (("codes", "weight"), ("scales", "weight_scale"), ("residual", "weight_scale_2")):
                self.assertIs(tensors[name], PACKED[role, part])

    def test_the_library_is_itself_again_also_after_an_error(self):
        with self.assertRaises(ZeroDivisionError), humming.giving(PACKED, DEVICE):
            1 / 0
        self.assertIs(self.library.prepare_and_transform_humming_tensors, self.original)


class Sglang(unittest.TestCase):
    def setUp(self):
        class Base:
            transform_humming_layer = classmethod(lambda cls, layer, sublayer_name: vars(layer).update(transformed=True))

        self.method = type("HummingMethod", (Base,), {})
        layer = module("humming.layer", HummingMethod=self.method)
        self.enterContext(mock.patch.dict(sys.modules, {"humming": module("humming", layer=layer), "humming.layer": layer}))

    def test_each_role_gets_its_tensors(self):
        names = {(role, part): f"{role}_{part}" for role, part in PACKED}
        layer = SimpleNamespace()
        with sglang_humming.giving(PACKED, names):
            self.method.transform_humming_layer(layer, sublayer_name="w2")
        self.assertEqual({name: int(t) for name, t in vars(layer).items()},
                         {name: int(PACKED[key]) for key, name in names.items() if key[0] == "w2"})
        self.method.transform_humming_layer(layer, sublayer_name="w2")
        self.assertTrue(layer.transformed)

    def test_pads_of_the_canary_keep_the_range_of_an_experts_scales(self):
        raw = {("w2", "codes"): torch.ones(2, 4, 2, dtype=torch.uint8), ("w13", "codes"): torch.ones(2, 4, 2, dtype=torch.uint8),
               ("w2", "scales"): torch.tensor([[[120, 0], [0, 0]], [[111, 130], [0, 0]]], dtype=torch.uint8)}
        layer, probe = torch.nn.Module(), torch.nn.Module()
        for (role, part), tensor in raw.items():
            layer.register_parameter(f"{role}_{part}", torch.nn.Parameter(tensor.to("meta"), requires_grad=False))
        for backend, filled in (("flashinfer-humming", [[[120, 120], [120, 120]], [[111, 130], [111, 111]]]),
                                ("flashinfer-cutlass", raw["w2", "scales"].tolist())):
            layer.mxfp4_pack = SimpleNamespace(set=SimpleNamespace(backend=backend), device=DEVICE, entries={
                key: SimpleNamespace(parameter="_".join(key)) for key in raw})
            probe.num_local_experts = 2
            conversion.fill(probe, SimpleNamespace(), layer, raw)
            self.assertEqual(probe.w2_scales.tolist(), filled)
            self.assertEqual(probe.w2_codes.tolist(), raw["w2", "codes"].tolist())


if __name__ == "__main__":
    unittest.main()
