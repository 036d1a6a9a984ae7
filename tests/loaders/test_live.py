"""A served model whose weights are loaded again, or whose experts are replaced: what mxfp4-pack itself writes, and its C
library, in stand-ins of vLLM's classes."""

import io
import os
import shutil
import tempfile
import unittest
from contextlib import redirect_stderr
from unittest import mock

import torch

import formats
import mxfp4_pack
import vllm_stand_in as vllm
from golden import same
from mxfp4_pack import Refused
from mxfp4_pack.learn.layout import learn, to_text
from mxfp4_pack.learn.probe import Probe, Size
from packed_dir import Checkpoint, flip_canary
from program import VERSIONS, convert, needs_program, run
from raw_layers import tensors_of
from test_fallback import UNPACK
from test_learn import engine
from vllm_case import held, quantization

EXPERTS = {"gpt-oss-20b": "model.layers.{}.mlp.experts", "deepseek-v4-flash": "model.layers.{}.ffn.experts"}
TYPES = {"gpt-oss-20b": "gpt_oss", "deepseek-v4-flash": "deepseek_v4"}
SETS = [("gpt-oss-20b", "marlin", ()), ("gpt-oss-20b", "triton-hopper", ("--layout-version", "a")),
        ("deepseek-v4-flash", "marlin", ())]
directory = None


def setUpModule():
    global directory
    temporary = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(temporary.cleanup)
    directory = temporary.name


def checkpoint(model, seed):
    source = os.path.join(directory, f"{model}-{seed}")
    if not os.path.isdir(source):
        run("synth", model, source, "--tiny", "--hidden", "256", "--intermediate", "256", "--seed", str(seed))
    return source


def output(model, backend, options, seed):
    out = os.path.join(directory, "-".join((model, backend, *options, str(seed))).replace("/", "_"))
    if not os.path.isdir(out):
        convert(checkpoint(model, seed), out, "vllm", backend, *options, *(VERSIONS["marlin"] if backend == "marlin" else ()))
    return out


def started(model, out, rank=(1, 0), expert_map=None, reads=None, **settings):
    """The engine's model, of one layer. reads: the backend whose bytes the model has, if that differs from the
    set's."""
    backend = reads or mxfp4_pack.Manifest(out, "vllm").sets[0]["backend"]
    experts = next(iter(mxfp4_pack.Manifest(out, "vllm").sets[0]["tensors"]))["experts"]
    raw = {("w13", "codes"): torch.empty(experts), **({("w13", "bias"): 0} if model.startswith("gpt") else {})}
    given = Checkpoint("vllm", backend, TYPES[model], 256, 256 // rank[0], {("model", 0): raw})
    limit = None if model.startswith("gpt") else 10.0
    vllm.serve(out, given, [EXPERTS[model].format(0)], tp=rank, expert_map=expert_map, swiglu_limit=limit, **settings)
    return vllm.current.model


def tensors(model):
    layer = model.layers[0]
    return {key: held(layer, key) for key in layer.quant_method.entries}


def emptied(model):
    """After sleep level 2 the addresses are valid, but the data are lost."""
    for tensor in tensors(model).values():
        mxfp4_pack.packed_set.flat(tensor).fill_(0x5A)
    return {key: tensor.data_ptr() for key, tensor in tensors(model).items()}


def moved(tensor):
    """Its experts in the order 2, 0, 3, 1, and its strides."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor[[2, 0, 3, 1]])


def raw(model, seed, layer="layers.0."):
    found = {name: t for name, t in tensors_of(checkpoint(model, seed)).items() if ".experts." in name and "shared" not in name}
    return {name: t for name, t in found.items() if name.removeprefix("model.").startswith(layer)}


@needs_program
class Live(unittest.TestCase):
    def setUp(self):
        quantization.canaries_passed.clear()

    def all_same(self, model, other):
        want = tensors(other)
        for key, tensor in tensors(model).items():
            same(self, tensor, want[key], key)

    def each(self):
        for model, backend, options in SETS:
            with self.subTest(model=model, backend=backend):
                yield model, lambda seed, *more: output(model, backend, (*options, *more), seed)

    def test_a_reload_reads_over_what_the_kernel_holds(self):
        for model, out in self.each():
            right, served = started(model, out(1)), started(model, out(1))
            addresses = emptied(served)
            with self.assertLogs("vllm.mxfp4_pack", "INFO") as log:
                served.reload_weights(out(1))
            self.assertIn("1 layer", log.output[-1])
            self.all_same(served, right)
            self.assertEqual({key: t.data_ptr() for key, t in tensors(served).items()}, addresses)

    def test_a_reload_from_another_output(self):
        for model, out in self.each():
            right, served = started(model, out(2)), started(model, out(1))
            served.reload_weights(out(2))
            self.all_same(served, right)
            served.reload_weights(out(1))
            self.all_same(served, started(model, out(1)))

    def test_a_reload_from_the_checkpoint_packs_it(self):
        for model, out in self.each():
            served = started(model, out(1))
            served.reload_weights(checkpoint(model, 2))
            self.all_same(served, started(model, out(2)))
            self.assertFalse(any(".experts." in name and "shared" not in name for name in served.others))

    def test_an_update_is_what_convert_makes(self):
        for model, out in self.each():
            served = started(model, out(1))
            addresses = {key: t.data_ptr() for key, t in tensors(served).items()}
            given = raw(model, 2)
            mxfp4_pack.update(served, given.keys(), given.values())
            self.all_same(served, started(model, out(2)))
            self.assertEqual({key: t.data_ptr() for key, t in tensors(served).items()}, addresses)

    def test_a_set_of_a_layout_file_takes_updates(self):
        size = Size(256, 256, True)
        with redirect_stderr(io.StringIO()):
            learned = learn(Probe(engine("vllm", "marlin", True, formats.marlin), size), True)
        model, path = "gpt-oss-20b", os.path.join(directory, "layout.json")
        with open(path, "w") as file:
            file.write(to_text("learned", "vllm", learned, {"moe-backend": "marlin"}))
        outs = [os.path.join(directory, f"learned-{seed}") for seed in (1, 2)]
        for seed, out in enumerate(outs, 1):
            run("convert", checkpoint(model, seed), out, "--layout", path, "--no-loader")
        served, given = started(model, outs[0], reads="marlin"), raw(model, 2)
        mxfp4_pack.update(served, given.keys(), given.values())
        self.all_same(served, started(model, outs[1], reads="marlin"))

    def test_an_update_of_one_expert_leaves_the_others(self):
        model, out = SETS[2][0], output(*SETS[2], 1)
        served, right = started(model, out), tensors(started(model, output(*SETS[2], 2)))
        before = {key: t.clone() for key, t in tensors(served).items()}
        given = {name: t for name, t in raw(model, 2).items() if ".experts.2." in name}
        mxfp4_pack.update(served, given.keys(), given.values())
        for key, got in tensors(served).items():
            for row in range(len(got)):
                same(self, got[row], (right if row == 2 else before)[key][row], (key, row))

    def test_ranks_take_their_share(self):
        for model, out in self.each():
            for rank in range(2):
                served = started(model, out(1, "--tp-size", "2"), (2, rank))
                given = raw(model, 2)
                mxfp4_pack.update(served, given.keys(), given.values())
                self.all_same(served, started(model, out(2, "--tp-size", "2"), (2, rank)))
            count = len(tensors(started(model, out(1)))["w2", "codes"])
            owned = torch.full((count,), -1)
            owned[[2, 0]] = torch.arange(2)
            served = started(model, out(1), expert_map=owned)
            mxfp4_pack.update(served, given.keys(), given.values())
            self.all_same(served, started(model, out(2), expert_map=owned))

    def test_weights_that_come_one_after_the_other(self):
        """As a trainer sends them, and in an order of its own."""
        for model, out in self.each():
            served = started(model, out(1))
            served.update_weights([("norm", torch.ones(2))])
            self.all_same(served, started(model, out(1)))  # experts stay where none come
            self.assertEqual(list(served.others), ["norm"])
            served.update_weights(reversed(raw(model, 2).items()))
            self.all_same(served, started(model, out(2)))

    def test_what_cannot_be_packed_is_refused_before_anything_is(self):
        model, out = SETS[2][0], output(*SETS[2], 1)
        served, given = started(model, out), raw(model, 2)
        gate = "layers.0.ffn.experts.1.w1.weight"
        scale = "layers.0.ffn.experts.1.w2.scale"
        nan = given[scale].view(torch.uint8).clone()
        nan[0, 0] = 0xFF
        for change, message in (({"layers.0.ffn.norm": torch.ones(1)}, "no packed tensor is made of it"),
                                ({gate: given[gate][:-1]}, "is int8 [255, 128], the checkpoint's was I8 [256, 128]"),
                                ({gate: given[gate].float()}, "is float32"),
                                ({gate: given[gate]}, "came without layers.0.ffn.experts.1.w3.weight"),
                                ({scale: nan}, "0xFF is NaN")):
            with self.subTest(message=message), self.assertRaises(Refused) as caught:
                mxfp4_pack.update(served, change.keys(), change.values())
            self.assertIn(message, str(caught.exception))
        self.all_same(served, started(model, out))
        with self.assertRaisesRegex(Refused, "came without layers.0.ffn.experts.1.w3.weight"):
            served.update_weights([(gate, given[gate])])
        with self.assertRaisesRegex(Refused, "has no packed experts"):
            mxfp4_pack.update(torch.nn.Module(), [], [])
        other = started(model, out)
        with (mock.patch.dict(os.environ, MXFP4_PACK_LIBRARY="/none.so"),
              self.assertRaisesRegex(Refused, "libmxfp4_pack.so is missing")):
            mxfp4_pack.update(other, [scale], [given[scale]])

    def test_a_reload_that_does_not_fit_is_refused_before_anything_is_read(self):
        model, backend, options = SETS[1]
        served = started(model, output(model, backend, options, 1))
        for other, message in ((output(model, backend, ("--layout-version", "c"), 1), "other sizes or another layout"),
                               (output(model, "marlin", (), 1), "asked for is triton")):
            with self.subTest(message=message), self.assertRaisesRegex(Refused, message):
                served.reload_weights(other)
        self.all_same(served, started(model, output(model, backend, options, 1)))
        partial = os.path.join(directory, "partial")
        shutil.copytree(checkpoint(model, 2), partial, ignore=shutil.ignore_patterns("model-00000*"))
        with self.assertRaisesRegex(Refused, "has not all experts of model.layers.0.mlp.experts"):
            served.reload_weights(partial)

    def test_experts_that_the_engine_converted_are_not_reloaded(self):
        model, backend, options = SETS[0]
        out = os.path.join(directory, "misfit")
        flip_canary(shutil.copytree(output(model, backend, options, 1), out))
        with mock.patch.dict(os.environ, UNPACK), self.assertLogs("vllm.mxfp4_pack"):
            served = started(model, out)
        with self.assertRaisesRegex(Refused, "MXFP4_PACK_FALLBACK"):
            served.reload_weights(out)

    def test_redundant_experts(self):
        """Two ranks with five experts each of the eight that four have, as vLLM places them at the start."""
        model, backend, options = SETS[2]
        out = output(model, backend, options, 1)
        right = tensors(started(model, out))
        count = len(right["w2", "codes"])
        for rank, ours in enumerate(([0, 1, 2, 3, 0], [1, 2, 3, 0, 1])):
            owned = torch.full((10,), -1)
            owned[5 * rank:5 * rank + 5] = torch.arange(5)
            served = started(model, out, expert_map=owned, enable_eplb=True, experts=10)
            for key, got in tensors(served).items():
                for row, expert in enumerate(ours):
                    same(self, got[row], right[key][expert], (key, row))
            with self.assertRaisesRegex(Refused, "a reload: with --enable-eplb experts may have moved"):
                served.reload_weights(out)
            served.update_weights([("norm", torch.ones(2))])
            with self.assertRaisesRegex(Refused, "new experts: with --enable-eplb"):
                served.update_weights(raw(model, 2).items())
        self.assertEqual(count, 4)
        with self.assertRaisesRegex(Refused, "asks for 10 experts, packed are 4"):
            started(model, out, experts=10)
        with self.assertRaisesRegex(Refused, "GptOssMxfp4MoEMethod does not support --enable-eplb"):
            started(SETS[0][0], output(*SETS[0], 1), enable_eplb=True)

    def test_rows_that_vllm_moves_are_whole_experts(self):
        for backend, options in (SETS[2][1:], SETS[1][1:]):
            out = output(SETS[2][0], backend, options, 1)
            asked = {"moe_backend": "triton_unfused"} if backend == "triton-hopper" else {}
            served, right = (started(SETS[2][0], out, enable_eplb=True, **asked) for _ in range(2))
            rows = served.layers[0].get_expert_weights()
            self.assertEqual(len(rows), len(tensors(right)))
            for tensor in rows:
                self.assertEqual((tensor.dtype, len(tensor)), (torch.uint8, 4))
                tensor.copy_(tensor[[2, 0, 3, 1]])
            for key, got in tensors(served).items():
                same(self, got, moved(tensors(right)[key]), (backend, key))


if __name__ == "__main__":
    unittest.main()
