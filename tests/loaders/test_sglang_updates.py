"""New weights in a running SGLang server, against stand-ins of the engine's classes."""

import os
import unittest

import torch

import mxfp4_pack
from mxfp4_pack import Refused
from packed_dir import random_layer
from program import convert, needs_program, run
from raw_layers import checkpoint_of, tensors_of
from sglang_case import LAYER, SglangCase, all_same, gpt_oss, hooks, sglang


class Updates(SglangCase):
    def test_a_running_server_is_updated_from_a_packed_directory(self):
        for backend in ("marlin", "triton-hopper", "flashinfer-cutlass"):
            with self.each(backend=backend):
                old, new = (gpt_oss(backend, {("model", 0): random_layer(seed, 2, 320, 352, True)}) for seed in (1, 2))
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
        with self.assertRaisesRegex(Refused, "Restart the server"):
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

    def test_nothing_is_written_past_the_loader(self):
        norm = [("model.norm.weight", torch.ones(1))]
        self.assertTrue(sglang.WeightUpdater().update_weights_from_tensor(norm, "direct")[0])
        layers = self.serve(gpt_oss("marlin"))
        done, message = sglang.WeightUpdater(layers).update_weights_from_tensor(norm, "direct")
        self.assertFalse(done)
        self.assertIn("nothing was changed", message)
        layers[0].quant_method.process_weights_after_loading(layers[0])  # what SGLang does at the end of every update
        all_same(self, gpt_oss("marlin"), layers[0], gpt_oss("marlin").expected(("model", 0)))


@needs_program
class Tensors(SglangCase):
    """New unpacked experts, which the C library packs to the bytes of `convert`."""

    def setUp(self):
        super().setUp()
        self.parent = os.path.dirname(self.directory)

    def made(self, backend, version, seed, model="gpt-oss-20b", *sizes):
        """(the experts' tensors of a checkpoint, what its layer must hold, its output)"""
        raw, out = (os.path.join(self.parent, f"{kind}-{backend}-{seed}") for kind in ("raw", "out"))
        run("synth", model, raw, "--tiny", "--layers", "1", "--seed", str(seed), *(sizes or ("--intermediate", "192")))
        convert(raw, out, "sglang", backend, "--layout-version", version)
        return ({name: t for name, t in tensors_of(raw).items() if ".experts." in name}, checkpoint_of(raw, "sglang", backend),
                out)

    def served(self, backend="marlin", version="1"):
        """(layers, their checkpoint, another one's experts, the other checkpoint)"""
        _, old, out = self.made(backend, version, 1)
        experts, new, _ = self.made(backend, version, 2)
        hooks.manifest = None
        return sglang.serve(out, old, [LAYER]), old, experts, new

    def test_an_update_is_what_convert_makes(self):
        for backend, version in (("marlin", "1"), ("triton-hopper", "b64-pairs")):
            with self.subTest(backend=backend):
                layers, _, experts, new = self.served(backend, version)
                addresses = [p.data_ptr() for p in layers[0].parameters()]
                updater = sglang.WeightUpdater(layers)
                half = len(experts) // 2  # they come in several requests
                for part in (list(experts.items())[:half], [*list(experts.items())[half:], ("norm", torch.ones(1))]):
                    self.assertEqual(updater.update_weights_from_tensor(part), (True, "Success"))
                all_same(self, new, layers[0], new.expected(("model", 0)))
                self.assertEqual(addresses, [p.data_ptr() for p in layers[0].parameters()])
                self.assertEqual(list(layers.model.others), ["norm"])

    def test_by_its_own_function(self):
        layers, _, experts, new = self.served()
        mxfp4_pack.update(layers.model, experts.keys(), experts.values())
        all_same(self, new, layers[0], new.expected(("model", 0)))

    def test_what_cannot_be_packed_is_answered(self):
        layers, old, experts, _ = self.served()
        updater = sglang.WeightUpdater(layers)
        blocks = "model.layers.0.mlp.experts.gate_up_proj_blocks"
        for name, tensor, message in ((blocks, experts[blocks].float(), "is float32"),
                                      ("model.layers.0.mlp.experts.gate_up_proj", torch.ones(1), "no packed tensor is made")):
            done, said = updater.update_weights_from_tensor([(name, tensor)])
            self.assertFalse(done)
            self.assertIn(message, said)
        hooks.packed_of(layers[0]).held = None  # as where MXFP4_PACK_FALLBACK made them
        done, said = updater.update_weights_from_tensor([(blocks, experts[blocks])])
        self.assertIn("converted the experts itself", said)
        all_same(self, old, layers[0], old.expected(("model", 0)))

    def test_gate_without_up(self):
        tensors, given, out = self.made("marlin", "1", 1, "deepseek-v4-flash", "--hidden", "256", "--intermediate", "128")
        layers = sglang.serve(out, given, [LAYER])
        gate, up = (f"layers.0.ffn.experts.1.{w}.weight" for w in ("w1", "w3"))
        updater = sglang.WeightUpdater(layers)
        self.assertTrue(updater.update_weights_from_tensor([(gate, tensors[gate])])[0])  # up may come later
        with self.assertLogs("sglang.mxfp4_pack", "ERROR") as log:
            layers[0].quant_method.process_weights_after_loading(layers[0])  # no more comes
        self.assertIn(f"{gate} came without {up}", log.output[0])
        all_same(self, given, layers[0], given.expected(("model", 0)))


if __name__ == "__main__":
    unittest.main()
