"""An engine's conversion of meta parameters that is done once for all layers of the same sizes."""

import unittest

import torch
from torch.nn import Module, Parameter

from mxfp4_pack.repeat import Repeat


class Tensor:
    """As triton_kernels has them: an object around storage."""
    __module__ = "vllm.third_party.triton_kernels.tensor"

    def __init__(self, data):
        self.data = data


class Layer(Module):
    def __init__(self, number):
        super().__init__()
        self.number = number
        self.register_parameter("w", Parameter(torch.empty(2, 4, device="meta"), requires_grad=False))
        self.register_buffer("old", torch.empty(1, device="meta"))


class Repeated(unittest.TestCase):
    def setUp(self):
        self.calls = 0
        self.repeat = Repeat()

    def convert(self, layer, add=None):
        self.calls += 1
        weight = layer.w
        del layer.w
        del layer.old
        layer.padded = 64
        layer.register_parameter("scale", Parameter(torch.empty(3, device="meta"), requires_grad=False))
        if add is not None:
            layer.own = add
        return Tensor(weight * 2), None

    def layers(self, keys, add=lambda layer: None):
        found = []
        for number, key in enumerate(keys):
            layer = Layer(number)
            found.append((layer, *self.repeat(key, lambda: self.convert(layer, add(layer)), layer)))
        return found

    def test_the_second_is_as_the_first(self):
        first, second = self.layers("aa")
        self.assertEqual(self.calls, 1)
        for layer, made, nothing in (first, second):
            self.assertFalse(hasattr(layer, "w") or hasattr(layer, "old"))
            self.assertEqual((layer.padded, layer.scale.shape, layer.scale.is_meta), (64, (3,), True))
            self.assertIsInstance(layer.scale, Parameter)
            self.assertEqual((type(made), made.data.shape, nothing), (Tensor, (2, 4), None))
        self.assertEqual([layer.number for layer, *_ in (first, second)], [0, 1])

    def test_layers_share_nothing(self):
        """A change of one layer's objects does not appear in the next layer's."""
        for layer, made, _ in self.layers("aaa"):
            self.assertTrue(made.data.is_meta and layer.scale.is_meta)
            made.data = torch.ones(2)

    def test_another_key_is_another_conversion(self):
        self.layers("abab")
        self.assertEqual(self.calls, 2)

    def test_what_is_not_known_to_be_copied_is_not(self):
        for add in (lambda layer: torch.ones(1), lambda layer: object(), lambda layer: [lambda: layer],
                    lambda layer: layer.number / 2, lambda layer: f"layers.{layer.number}"):
            self.calls = 0
            for layer, *_ in self.layers(["a" + repr(add)] * 2, add):
                self.assertEqual(type(layer.own), type(add(layer)))
            self.assertEqual(self.calls, 2)


if __name__ == "__main__":
    unittest.main()
