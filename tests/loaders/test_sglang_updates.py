"""New weights in a running SGLang server, against stand-ins of the engine's classes."""

import os
import unittest

import torch

from mxfp4_pack import Refused
from packed_dir import random_layer
from sglang_case import SglangCase, all_same, gpt_oss, hooks, sglang


class Updates(SglangCase):
    def test_a_running_server_is_updated_from_a_packed_directory(self):
        for backend in ("marlin", "triton-hopper", "flashinfer-cutlass"):
            with self.subTest(backend=backend):
                old, new = (gpt_oss(backend, {("model", 0): random_layer(seed, 2, 320, 352, True)}) for seed in (1, 2))
                self.directory += backend
                new.write(self.directory + "2")
                hooks.manifest = None
                layer, = self.serve(old)
                addresses = [p.data_ptr() for p in layer.parameters()]
                updater = sglang.WeightUpdater([layer])
                self.assertTrue(updater.update_weights_from_disk(self.directory + "2", "auto")[0])
                all_same(self, new, layer, new.expected(("model", 0)))
                self.assertEqual(addresses, [p.data_ptr() for p in layer.parameters()])
                self.assertEqual(updater.loaded, [self.directory + "2"])

    def test_an_update_that_fails_leaves_all_old(self):
        old, new = (gpt_oss("marlin", {("model", 0): random_layer(seed, 2, 320, 352, True)}) for seed in (1, 2))
        other = self.directory + "2"
        new.write(other)
        layer, = self.serve(old)
        updater = sglang.WeightUpdater([layer], broken=[other])  # SGLang fails, and reads the new directory on its way back
        done, message = updater.update_weights_from_disk(other, "auto")
        self.assertFalse(done)
        self.assertIn(f"the weights of {self.directory} serve on", message)
        self.assertEqual(updater.loaded, [other, self.directory])
        all_same(self, old, layer, old.expected(("model", 0)))
        experts = os.path.join(other, "packed/packed-00001.safetensors")
        os.truncate(experts, os.path.getsize(experts) - 1)
        updater = sglang.WeightUpdater([layer])
        done, message = updater.update_weights_from_disk(other, "auto")
        self.assertFalse(done)
        self.assertIn("serve on", message)
        self.assertEqual(updater.loaded, [other, self.directory])
        all_same(self, old, layer, old.expected(("model", 0)))
        updater.broken = [other, self.directory]
        with self.assertRaisesRegex(Refused, "Start the server anew"):
            updater.update_weights_from_disk(other, "auto")

    def test_an_update_that_does_not_fit_is_refused(self):
        updater = sglang.WeightUpdater()
        self.assertTrue(updater.update_weights_from_disk("elsewhere", "auto")[0])
        layer, = self.serve(gpt_oss("marlin"))
        updater = sglang.WeightUpdater([layer])
        gpt_oss("flashinfer-cutlass").write(self.directory + "2")
        gpt_oss("marlin", {("model", 0): random_layer(1, 3, 320, 352, True)}).write(self.directory + "3")
        for path, text in (("elsewhere", "Pack them"), (self.directory + "2", "asked for is marlin"),
                           (self.directory + "3", "of other sizes or another layout")):
            done, message = updater.update_weights_from_disk(path, load_format="auto")
            self.assertFalse(done)
            self.assertIn(text, message)
            self.assertIn("nothing was changed", message)
        done, message = updater.update_weights_from_disk(self.directory, "auto", lambda name: True)
        self.assertIn("from a part of", message)
        self.assertEqual(updater.loaded, [])
        hooks.manifest = None
        self.assertFalse(updater.update_weights_from_disk(self.directory, "auto")[0])

    def test_a_running_server_gets_no_tensors(self):
        def updates():
            updater, manager = sglang.WeightUpdater(), sglang.SchedulerWeightUpdaterManager()
            output = manager.update_weights_from_distributed(object())
            return [updater.update_weights_from_tensor([("model.norm.weight", torch.ones(1))], load_format="direct"),
                    updater.update_weights_from_ipc(object()), updater.init_weights_update_group("host", 1, 0, 2, "group"),
                    (output.success, output.message)]

        self.assertEqual([done for done, _ in updates()], [True] * 4)
        layer, = self.serve(gpt_oss("marlin"))
        for done, message in updates():
            self.assertFalse(done)
            self.assertIn("cannot be updated in a running server", message)
            self.assertIn("nothing was changed", message)
        layer.quant_method.process_weights_after_loading(layer)  # what SGLang does at the end of every update
        all_same(self, gpt_oss("marlin"), layer, gpt_oss("marlin").expected(("model", 0)))


if __name__ == "__main__":
    unittest.main()
