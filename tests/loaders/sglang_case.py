"""Common parts of the tests of the SGLang loader: stand-ins for the engine's classes, checkpoints, and serving of a
checkpoint."""

import os
import tempfile
import unittest

import packed_dir
import sglang_stand_in as sglang
from golden import same
from mxfp4_pack import Refused

sglang.install()
import mxfp4_pack.sglang  # noqa: E402
from mxfp4_pack.sglang import arguments, hooks  # noqa: E402

mxfp4_pack.sglang.register()
sglang.HookRegistry.apply()

LAYER = ("model.layers.0.mlp.experts", 0)


def gpt_oss(backend, layers=None):
    return packed_dir.gpt_oss("sglang", backend, layers)


def deepseek(backend, layers=None):
    return packed_dir.deepseek("sglang", backend, layers)


def all_same(test, checkpoint, layer, expected):
    """The layer holds `expected` as its kernel sees it, and nothing without memory."""
    for (role, part), want in expected.items():
        if checkpoint.backend == "triton-hopper" and part != "bias":
            thing = getattr(layer.quant_method, role + "_weight_triton_tensor")
            if part == "scales":
                thing = getattr(getattr(layer.quant_method, role + "_precision_config"), sglang.scale_name.value)
            got = thing.storage.data
        else:
            got = getattr(layer, checkpoint.name(role, part)).data
        same(test, got, want, (role, part))
    test.assertFalse([name for name, p in layer.named_parameters() if p.is_meta])


class SglangCase(unittest.TestCase):
    def setUp(self):
        self.directory = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "out")
        sglang.TP.size, sglang.TP.rank, sglang.TP.ep_rank = 1, 0, 0
        sglang.scale_name.value = "weight_scale"
        hooks.manifest = None
        os.environ.pop(arguments.CHECKED, None)
        self.addCleanup(setattr, sglang.converter_bug, "value", False)

    def each(self, **values):
        """Begins a subtest with a directory of its own."""
        self.directory += "x"
        return self.subTest(**values)

    def refuses(self, message, checkpoint=None, layers=(LAYER,), **given):
        with self.assertRaises(Refused) as caught:
            self.serve(checkpoint or gpt_oss("marlin"), layers, **given)
        self.assertIn(message, str(caught.exception))
        return str(caught.exception)

    def serve(self, checkpoint, layers=(LAYER,), **given):
        hooks.manifest = None
        if not os.path.isdir(self.directory):
            checkpoint.write(self.directory)
        return sglang.serve(self.directory, checkpoint, layers, **given)
