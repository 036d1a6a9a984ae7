"""convert --format sharded-state against a stand-in of SGLang's ShardedStateLoader (v0.5.17): a state dict with the names,
shapes and dtypes of GPT-OSS after the engine's own conversion, filled from the files. MXFP4_PACK names the program."""

import glob
import json
import os
import subprocess
import tempfile
import unittest

import torch
from safetensors import safe_open

from golden import TESTDATA, same
from packed_dir import Checkpoint
from raw_layers import gpt_oss_layers, tensors_of
from test_tool import PROGRAM

ATTENTION = "model.layers.{}.self_attn."
EXPERTS = "model.layers.{}.mlp.experts."


def rows(t, rank, size):
    return t.chunk(size)[rank]


def qkv(tensors, layer, kind, config, rank, size):
    """Whole heads: a rank's share of q's; of k's and v's, of which several ranks hold the same where ranks are more."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    q, k, v = (tensors[f"{ATTENTION.format(layer)}{p}_proj.{kind}"].unflatten(0, (-1, config["head_dim"])) for p in "qkv")
    own = slice(rank * kv_heads // size, max((rank + 1) * kv_heads // size, rank * kv_heads // size + 1))
    return torch.cat([q[rank * heads // size:(rank + 1) * heads // size].flatten(0, 1), k[own].flatten(0, 1),
                      v[own].flatten(0, 1)])


def rank_layer(raw, rank, size):
    """A rank's columns of the intermediate dimension; w2's bias is added on rank 0 alone."""
    share = raw["w2", "codes"].shape[2] * 2 // size
    out = {}
    for (role, part), t in raw.items():
        width = {"codes": share // 2, "scales": share // 32}.get(part)
        out[role, part] = (t[:, 2 * rank * share:2 * (rank + 1) * share] if role == "w13" else
                           (torch.zeros_like(t) if rank else t) if part == "bias" else t[:, :, rank * width:(rank + 1) * width])
    return out


def state_of(tensors, config, backend, rank, size):
    """What SGLang's state dict of the rank holds after process_weights_after_loading."""
    state = {"model.norm.weight": tensors["model.norm.weight"]}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        state[name] = rows(tensors[name], rank, size)
    sizes = config["hidden_size"], config["intermediate_size"] // size
    for (_, n), raw in gpt_oss_layers(tensors, config).items():
        for name in ("input_layernorm.weight", "post_attention_layernorm.weight", "mlp.router.weight", "mlp.router.bias",
                     "self_attn.o_proj.bias"):
            state[f"model.layers.{n}.{name}"] = tensors[f"model.layers.{n}.{name}"]
        for kind in ("weight", "bias"):
            state[f"{ATTENTION.format(n)}qkv_proj.{kind}"] = qkv(tensors, n, kind, config, rank, size)
        state[ATTENTION.format(n) + "o_proj.weight"] = rows(tensors[ATTENTION.format(n) + "o_proj.weight"].T, rank, size).T
        state[ATTENTION.format(n) + "sinks"] = rows(tensors[ATTENTION.format(n) + "sinks"], rank, size)
        checkpoint = Checkpoint("sglang", backend, "gpt_oss", *sizes, {("model", n): rank_layer(raw, rank, size)})
        for key, t in checkpoint.expected(("model", n)).items():
            state[EXPERTS.format(n) + checkpoint.name(*key)] = t
        if backend == "flashinfer-cutlass":
            for name, value in (("alpha", 1.702), ("beta", 1.0), ("limit", 7.0)):
                state[f"{EXPERTS.format(n)}swiglu_{name}"] = torch.full((config["num_local_experts"],), value)
    return state


def load_sharded_state(directory, rank, state):
    """ShardedStateLoader.load_model with its default pattern: fills `state`, each tensor by copy_."""
    left = dict(state)
    files = glob.glob(os.path.join(directory, f"model-rank-{rank}-part-*.safetensors"))
    assert files, "Could not find checkpoint files"
    for path in files:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():
                tensor, parameter = file.get_tensor(name), left[name]  # KeyError: no such parameter
                assert tensor.dtype == parameter.dtype, f"{name}: copy_ would convert {tensor.dtype} to {parameter.dtype}"
                assert tensor.shape == parameter.shape, name
                parameter.copy_(tensor)
                del left[name]
    assert not left, f"Missing keys {tuple(left)} in loaded state!"


@unittest.skipUnless(PROGRAM, "MXFP4_PACK names no mxfp4-pack: its output is not tested here")
class ShardedState(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.parent = temporary.name

    def run_program(self, *arguments):
        return subprocess.run([PROGRAM, *arguments, "-q"], capture_output=True, text=True)

    def convert(self, source, name, *options):
        out = os.path.join(self.parent, name)
        done = self.run_program("convert", source, out, "--engine", "sglang", "--format", "sharded-state", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return out

    def check(self, source, backend, size, *version):
        with self.subTest(source=source, backend=backend, tp_size=size):
            with open(os.path.join(source, "config.json")) as file:
                config = json.load(file)
            out = self.convert(source, f"{backend}-{size}-{config['intermediate_size']}", "--backend", backend, "--tp-size",
                               str(size), *version)
            for rank in range(size):
                want = state_of(tensors_of(source), config, backend, rank, size)
                state = {name: torch.zeros_like(t) for name, t in want.items()}
                load_sharded_state(out, rank, state)
                for name, t in want.items():
                    same(self, state[name].contiguous(), t.contiguous(), f"rank {rank}: {name}")
            self.assertEqual(self.run_program("verify", out, "--source", source).returncode, 0)

    def test_every_rank_loads(self):
        tiny = os.path.join(TESTDATA, "tiny", "gpt-oss")
        even = os.path.join(self.parent, "even")  # its ranks have no pads along intermediate: see test_tool
        self.assertEqual(self.run_program("synth", "gpt-oss-20b", even, "--tiny", "--intermediate", "512").returncode, 0)
        self.check(tiny, "marlin", 1)
        for size in (1, 2, 4):  # 4: more ranks than key and value heads
            self.check(even, "marlin", size)
            self.check(even, "flashinfer-cutlass", size, "--layout-version", "v1")

    def test_a_default_load_fails(self):
        source = os.path.join(TESTDATA, "tiny", "gpt-oss")
        out = self.convert(source, "out", "--backend", "marlin")
        with open(os.path.join(out, "config.json")) as config, open(os.path.join(source, "config.json")) as original:
            self.assertEqual(config.read(), original.read())
        with open(os.path.join(out, "model.safetensors.index.json")) as file:
            named = set(json.load(file)["weight_map"].values())
        self.assertTrue(named)
        self.assertFalse([name for name in named if os.path.exists(os.path.join(out, name))])

    def test_a_flipped_byte_is_found_and_unpack_gives_the_source(self):
        source = os.path.join(TESTDATA, "tiny", "gpt-oss")
        out, again = self.convert(source, "out", "--backend", "marlin", "--tp-size", "2"), os.path.join(self.parent, "again")
        self.assertEqual(self.run_program("unpack", out, again).returncode, 0)
        made, original = tensors_of(again), tensors_of(source)
        self.assertEqual(made.keys(), original.keys())
        for name, t in original.items():
            same(self, made[name], t, name)
        path = os.path.join(out, "model-rank-1-part-0.safetensors")
        with open(path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last ^ 1]))
        done = self.run_program("verify", out)
        self.assertEqual(done.returncode, 1)
        self.assertIn("model-rank-1-part-0.safetensors: 1 bytes differ from the copied tensors", done.stdout)

    def test_what_is_refused(self):
        tiny = os.path.join(TESTDATA, "tiny")
        for source, options, message in (
                ("gpt-oss", ["--engine", "vllm", "--backend", "marlin"], "not for marlin of vllm"),
                ("gpt-oss", ["--engine", "sglang", "--backend", "triton-hopper"], "not for triton-hopper of sglang"),
                ("deepseek-v4", ["--engine", "sglang", "--backend", "marlin"], "is for GPT-OSS"),
                ("gpt-oss", ["--engine", "sglang", "--backend", "marlin", "--tp-size", "5"], "do not split into 5 ranks")):
            with self.subTest(message=message):
                out = os.path.join(self.parent, "refused")
                done = self.run_program("convert", os.path.join(tiny, source), out, "--format", "sharded-state", *options)
                self.assertEqual(done.returncode, 2)
                self.assertIn(message, done.stderr)
                self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    unittest.main()
