"""MXFP4_PACK_KERNEL=1 in the vLLM loader: what it replaces and refuses, in stand-ins of the engine's classes. With a GPU
of compute capability 9.0 also the C library's kernels, on what mxfp4-pack itself writes."""

import os
import unittest
from types import SimpleNamespace
from unittest import mock

import torch

import vllm_stand_in as vllm
from mxfp4_pack import Manifest, Refused, kernels
from mxfp4_pack._moe import Moe
from packed_dir import random_layer
from program import PROGRAM, needs_program, run
from test_fallback import UNPACK
from test_live import SETS, checkpoint, output, setUpModule, started  # noqa: F401
from vllm_case import DEEPSEEK, GPT, VllmCase, deepseek, gpt_oss, quantization
from mxfp4_pack.vllm import own_kernel

ON = mock.patch.dict(os.environ, {own_kernel.VARIABLE: "1"})


class Fake:
    """Stands for Moe: adds the weights of a token's experts that the map knows."""
    made = []

    def __init__(self, packed, entries, experts, top_k, gpu, swiglu_limit=None):
        self.given = (packed.backend, experts, top_k, gpu, swiglu_limit)
        self.layer = SimpleNamespace(top_k=top_k)
        self.made.append(self)

    def bind(self, tensors):
        self.tensors = tensors

    def workspace(self, tokens):
        return tokens

    def run(self, x, ids, weights, expert_map, out, workspace):
        assert ids.dtype == torch.int32 and weights.dtype == torch.float32 and x.is_contiguous()
        known = torch.ones_like(ids) if expert_map is None else (expert_map[ids.long()] >= 0).int()
        out.copy_(x + (weights * known).sum(1, keepdim=True))


class OwnKernel(VllmCase):
    def setUp(self):
        super().setUp()
        own_kernel.layers.clear()
        own_kernel.workspaces.clear()
        Fake.made.clear()

    def refuses(self, *given, **settings):
        self.assertNotIn("\n", super().refuses(*given, **settings))

    def test_off_it_changes_nothing(self):
        for value in (None, "", "0"):
            with mock.patch.dict(os.environ, {} if value is None else {own_kernel.VARIABLE: value}), \
                    mock.patch.object(own_kernel, "Moe", None):
                layer = self.serve(gpt_oss("marlin"))
                self.assertNotIn("apply", vars(layer.quant_method.moe_kernel.fused_experts))
        self.assertEqual(own_kernel.layers, [])

    @ON
    def test_without_a_gpu(self):
        self.refuses("MXFP4_PACK_KERNEL=1: this package's MoE kernels cannot compute the layers: vLLM runs on cpu, expected a "
                     "CUDA GPU of compute capability 9.0. Leave MXFP4_PACK_KERNEL out")

    @ON
    def test_settings(self):
        for message, settings in (
                ("--load-format dummy", {"load_format": "dummy"}), ("--load-format ipc_cache", {"load_format": "ipc_cache"}),
                ("--enable-lora", {"lora_config": object()}),
                ("--enable-dbo", {"enable_dbo": True}), ("expected torch.bfloat16", {"dtype": torch.float16}),
                ("vLLM's activation is situ, the experts were packed for silu", {"activation": "situ"})):
            with self.subTest(message=message):
                self.refuses(message, **settings)
        with mock.patch.dict(os.environ, {"VLLM_BATCH_INVARIANT": "1"}):
            self.refuses("they do not support VLLM_BATCH_INVARIANT=1")
        with mock.patch.dict(os.environ, {own_kernel.VARIABLE: "yes"}):
            self.refuses("MXFP4_PACK_KERNEL is 'yes', it can only be 0 or 1")

    @ON
    def test_balanced_experts(self):
        self.refuses("they do not support --enable-eplb", deepseek("marlin"), DEEPSEEK.format(0), enable_eplb=True, swiglu_limit=10.0)

    @ON
    def test_other_packings(self):
        self.refuses("the experts are packed for flashinfer_cutlass, expected marlin or triton-hopper",
                     gpt_oss("flashinfer-cutlass"))

    def installed(self, made, **settings):
        with ON, mock.patch.object(own_kernel, "Moe", Fake), mock.patch.object(own_kernel, "gpu_number", lambda device: 3):
            return self.serve(made, **settings)

    def test_a_modular_kernel_is_replaced(self):
        expert_map = torch.tensor([-1, 0, 1, -1])
        made = deepseek("marlin", {("model", 0): random_layer(1, 4, 256, 128, False)})
        layer = self.installed(made, prefix=DEEPSEEK.format(0), expert_map=expert_map, swiglu_limit=10.0)
        method = layer.quant_method
        self.assertEqual(method.own.given, ("marlin", 2, 2, 3, 10.0))
        self.assertEqual({k: t.data_ptr() for k, t in method.own.tensors.items()},
                         {k: t.data_ptr() for k, t in method.held.items()})
        self.assertEqual(len(own_kernel.workspaces[torch.device("cpu")]), 4096)
        x, out = torch.zeros(3, 256, dtype=torch.bfloat16), torch.full((3, 256), 9, dtype=torch.bfloat16)
        ids, weights = torch.tensor([[0, 1], [1, 2], [0, 3]]), torch.tensor([[1, 2], [3, 4], [5, 6]], dtype=torch.bfloat16)
        rest = dict.fromkeys(("w1", "w2", "activation", "global_num_experts", "a1q_scale", "a2_scale", "workspace13",
                              "workspace2", "expert_tokens_meta", "apply_router_weight_on_input"))
        method.moe_kernel.fused_experts.apply(output=out, hidden_states=x, topk_weights=weights, topk_ids=ids,
                                              expert_map=expert_map, **rest)
        self.assertEqual(out[:, 0].tolist(), [2, 7, 0])

    def test_a_kernel_that_routes_is_replaced(self):
        method = self.installed(gpt_oss("triton-hopper"), moe_backend="triton").quant_method
        x = torch.zeros(2, 320, dtype=torch.bfloat16)
        out = method.moe_kernel.fused_experts.apply(x, None, None, torch.randn(2, 2), None, 2, None, None, False)
        self.assertEqual(out.unique().tolist(), [1])  # weights of all chosen experts sum to 1
        self.assertEqual(x.unique().tolist(), [0])

    def test_layers_share_a_workspace(self):
        layers = {("model", n): random_layer(n, 2, 320, 352, True) for n in range(2)}
        for number in range(2):
            self.installed(gpt_oss("triton-hopper", layers), prefix=GPT.format(number))
        (_, first), (_, second) = own_kernel.layers
        self.assertEqual(first.data_ptr(), second.data_ptr())

    def test_a_vllm_that_calls_otherwise(self):
        class OtherExperts(vllm.MarlinExperts):
            pass

        class MarlinExperts:
            def apply(self, output, hidden, topk_weights, topk_ids, expert_map):
                pass
        for experts in (OtherExperts, MarlinExperts):
            with mock.patch.dict(vllm.EXPERTS, {vllm.Backend.MARLIN: experts}), self.assertRaises(Refused) as caught:
                self.installed(gpt_oss("marlin"))
            self.assertIn(f"they do not know how this vLLM calls {experts.__name__}", str(caught.exception))

    def test_tensors_that_vllm_replaces(self):
        with mock.patch.object(quantization.live, "is_kept", lambda *given: False), self.assertRaises(Refused) as caught:
            self.installed(gpt_oss("marlin"))
        self.assertIn("vLLM does not keep the tensors that were read", str(caught.exception))

    def started(self):
        out = output("gpt-oss-20b", "marlin", (), 1)
        with ON, mock.patch.object(own_kernel, "Moe", Fake), mock.patch.object(own_kernel, "gpu_number", lambda device: 0):
            return out, started("gpt-oss-20b", out, activation="swigluoai")

    @needs_program
    def test_a_reload_is_refused(self):
        out, served = self.started()
        with self.assertRaisesRegex(Refused, "a reload: MXFP4_PACK_KERNEL=1 keeps biases and the largest scale"):
            served.reload_weights(out)

    @needs_program
    def test_experts_that_vllm_converts_itself_are_refused(self):
        with mock.patch.dict(os.environ, UNPACK), mock.patch.object(vllm.converter_bug, "value", True), self.assertRaises(Refused) as caught:
            self.started()
        self.assertIn("the experts do not fit this vLLM, which converts them itself: ", str(caught.exception))


def opened(model, backend, options):
    """The set of an output of `model`, and the entries of its layer."""
    packed = Manifest(output(model, backend, options, 1), "vllm").pick("auto", 1, 0)
    return packed, packed.layers["model", 0]


@needs_program
class Library(unittest.TestCase):
    """The C functions' refusals, which need no GPU."""

    def refuses(self, message, *given, backend="marlin", options=(), **more):
        packed, entries = opened("gpt-oss-20b", backend, options)
        with self.assertRaises(Refused) as caught:
            Moe(packed, entries, *given, **more)
        self.assertIn(message, str(caught.exception))

    def test_arguments(self):
        self.refuses("top_k is 0, expected 1 to 3", 3, 0, 0)
        self.refuses("top_k is 4, expected 1 to 3", 3, 4, 0)
        self.refuses("experts is 4, expected 1 to 3", 4, 1, 0)
        self.refuses("there is no CUDA device 77" if torch.cuda.is_available() else "MoE kernels cannot run: ", 3, 1, 77)
        packed, entries = opened("gpt-oss-20b", "marlin", ())
        with self.assertRaisesRegex(Refused, "w13_weight_scale: expected the codes of a layer's w13"):
            Moe(packed, {("w13", "codes"): entries["w13", "scales"]}, 3, 1, 0)
        self.refuses("they do not read the layout of backend flashinfer-trtllm", 3, 1, 0,
                     backend="flashinfer-trtllm")


@unittest.skipUnless(PROGRAM and torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0),
                     "no GPU of compute capability 9.0")
class OnGpu(unittest.TestCase):
    def layer(self, model, backend, options, experts=None, top_k=2):
        packed, entries = opened(model, backend, options)
        experts = range(entries["w13", "codes"].experts) if experts is None else experts
        moe = Moe(packed, entries, len(experts), top_k, 0)
        moe.bind(packed.read_layer(entries, list(experts), torch.device("cuda", 0)))
        return moe

    def each(self):
        for model, backend, options in (*SETS, ("deepseek-v4-flash", "triton-hopper", ("--layout-version", "a"))):
            with self.subTest(model=model, backend=backend):
                yield model, backend, options

    @staticmethod
    def computed(moe, x, ids, weights, expert_map=None, at_once=None):
        x = torch.nn.functional.pad(x.bfloat16(), (0, moe.hidden - x.shape[1])).cuda()
        out = torch.full_like(x, float("nan"))
        workspace = torch.full((moe.workspace(at_once or max(1, len(x))),), 0xff, dtype=torch.uint8, device="cuda")
        moe.run(x, ids.int().cuda(), weights.float().cuda(), expert_map, out, workspace)
        torch.cuda.synchronize()
        return out

    @staticmethod
    def random(tokens, hidden=256):
        return torch.randn(tokens, hidden), torch.rand(tokens, 3).topk(2).indices, torch.rand(tokens, 2)

    def test_right(self):
        for model, backend, options in self.each():
            path = os.path.join(os.path.dirname(output(model, backend, options, 1)), f"{model}-{backend}.batches")
            run("verify", output(model, backend, options, 1), "--source", checkpoint(model, 1), "--save", path)
            for batch in kernels.read_batches(path):
                moe = self.layer(model, backend, options, top_k=batch.ids.shape[1])
                out = self.computed(moe, batch.x, batch.ids, batch.weights)[:, :256].double().cpu()
                self.assertLess(kernels.distance(out, batch.out), 3e-3)

    def test_ranks_add_up(self):
        for model, backend, options in self.each():
            given = self.random(70)
            whole = self.computed(self.layer(model, backend, options), *given).double()
            parts = torch.zeros_like(whole)
            for own in ([0, 2], [1]):  # a rank of one expert cannot get two of a token, so it gets them one by one
                expert_map = torch.full((4,), -1, dtype=torch.int32)
                expert_map[own] = torch.arange(len(own), dtype=torch.int32)
                moe = self.layer(model, backend, options, own, len(own))
                x, ids, weights = (t.repeat_interleave(2 // len(own), 0) for t in given)
                if len(own) == 1:
                    ids, weights = (t[::2].reshape(-1, 1) for t in (ids, weights))
                out = self.computed(moe, x, ids, weights, expert_map.cuda()).double()
                parts += out.view(70, -1, out.shape[1]).sum(1)
            self.assertLess(kernels.distance(parts, whole), 5e-3)

    def test_graphs(self):
        """Captured without a call before, for every kernel; replays have the bits of a call."""
        for model, backend, options in self.each():
            for tokens in (1, 2, 17, 40, 90, 300):
                moe = self.layer(model, backend, options)
                x, ids, weights = (t.cuda() for t in self.random(tokens, moe.hidden))
                x, ids, out = x.bfloat16(), ids.int(), torch.empty(tokens, moe.hidden, dtype=torch.bfloat16, device="cuda")
                workspace = torch.empty(moe.workspace(tokens), dtype=torch.uint8, device="cuda")
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    moe.run(x, ids, weights, None, out, workspace)
                for _ in range(2):
                    new = [t.cuda() for t in self.random(tokens, moe.hidden)]
                    for old, t in zip((x, ids, weights), new):
                        old.copy_(t)
                    out.fill_(float("nan"))
                    graph.replay()
                    first = out.clone()
                    graph.replay()
                    torch.cuda.synchronize()
                    self.assertTrue(torch.equal(out, first))
                    self.assertTrue(torch.equal(out, self.computed(moe, x, ids, weights)))

    def test_parts(self):
        for model, backend, options in self.each():
            moe, given = self.layer(model, backend, options), self.random(100)
            parts = self.computed(moe, *given, at_once=50)
            self.assertTrue(torch.equal(parts[50:], self.computed(moe, *(t[50:] for t in given))))
            self.assertEqual(self.computed(moe, *self.random(0)).numel(), 0)

    def test_refusals(self):
        moe, (x, ids, weights) = self.layer(*SETS[0]), self.random(3)
        with self.assertRaisesRegex(ValueError, "do not fit a layer of hidden size"):
            self.computed(moe, x, ids[:, :1], weights)
        x = torch.zeros(3, moe.hidden, dtype=torch.bfloat16, device="cuda")
        for workspace, why in ((torch.empty(256, dtype=torch.uint8, device="cuda"), "the workspace has no room for one token"),
                               (torch.empty(1 << 20, dtype=torch.uint8, device="cuda")[1:], "aligned to 256")):
            with self.assertRaisesRegex(Refused, why):
                moe.run(x, ids.int().cuda(), weights.cuda(), None, x.clone(), workspace)


if __name__ == "__main__":
    unittest.main()
