"""Canaries that the loaders of both engines refuse."""

import os

import torch
from safetensors.torch import load_file, save_file


class Refusals:
    """Of a test case with `directory` and refuses(). make(backend): a checkpoint for its engine."""

    def written(self):
        """(a checkpoint, the path of its canary)"""
        checkpoint = self.make("marlin")
        checkpoint.write(self.directory)
        return checkpoint, os.path.join(self.directory, "packed/canary-0.safetensors")

    def test_changed_canary_is_refused(self):
        checkpoint, path = self.written()
        for name in ("in.w2", "out.w13_weight_scale", f"out.{checkpoint.name('w2', 'bias')}"):
            with self.subTest(changed=name):
                tensors = load_file(path)
                tensors[name].view(torch.uint8).view(-1)[0] ^= 1
                save_file(tensors, path)
                message = self.refuses("bytes differ", checkpoint)
                self.assertIn(f"installed: {checkpoint.engine}", message)
                self.assertIn("packed as: ", message)
                self.assertIn(f"mxfp4-pack convert CHECKPOINT {self.directory} --engine {checkpoint.engine} --backend marlin",
                              message)
                tensors[name].view(torch.uint8).view(-1)[0] ^= 1
                save_file(tensors, path)

    def test_failing_converter_is_refused(self):
        checkpoint, path = self.written()
        tensors = load_file(path)
        del tensors["in.w2_scale"]
        save_file(tensors, path)
        self.refuses("its converter fails on the canary", checkpoint)
