"""SGLang's options that move experts between ranks, to the host or out of memory, in stand-ins of its classes."""

import sys
from contextlib import contextmanager
from unittest import main

import torch

import sglang_options_stand_in as options
from golden import same
from packed_dir import random_layer
from sglang_case import LAYER, SglangCase, all_same, deepseek, gpt_oss, sglang

SRT = "sglang.srt."


class Block(torch.nn.Module):
    """A decoder layer, around experts whose parameters have no memory yet."""

    def __init__(self, experts):
        super().__init__()
        self.norm, self.experts = torch.nn.Parameter(torch.zeros(4)), experts

    def get_moe_weights(self):
        return [parameter.data for parameter in self.experts.parameters()]


class Balanced(SglangCase):
    """Two ranks with six rows for four experts; the map is that of the layer's number."""

    def setUp(self):
        super().setUp()
        self.addCleanup(setattr, options.placed, "map", None)
        self.checkpoint = deepseek("marlin", {("model", 0): random_layer(1, 4, 256, 128, False)})
        self.expected = self.checkpoint.expected(("model", 0))

    def rank(self, rank, map_):
        options.placed.map, sglang.TP.ep_rank = map_, rank
        made = []

        def wrap(model):
            model.block = Block(model.experts[0])
            made.append(model)
        layer, = self.serve(self.checkpoint, experts=6, ep_size=2, before_processing=wrap, enable_eplb=True,
                            ep_num_redundant_experts=2)
        return made[0], layer

    def are(self, layer, experts):
        all_same(self, self.checkpoint, layer, {key: t[experts] for key, t in self.expected.items()})

    def test_rows_are_the_experts_of_the_map(self):
        for rank, experts in enumerate(([0, 1, 2], [3, 0, 1])):
            self.are(self.rank(rank, [[0, 1, 2, 3, 0, 1]])[1], experts)
        self.are(self.rank(1, [[0, 1, 2, 1, 3, 3]])[1], [1, 3, 3])

    def test_the_engine_gets_bytes_of_all_tensors(self):
        model, layer = self.rank(1, [[0, 1, 2, 3, 0, 1]])
        rows = model.block.get_moe_weights()
        self.assertEqual(len(rows), 4)
        self.assertEqual({(t.dtype, len(t)) for t in rows}, {(torch.uint8, 3)})
        for tensor in rows:
            tensor[0] = tensor[1].clone()
        self.are(layer, [0, 0, 1])

    def test_an_update_goes_where_the_experts_are(self):
        """The rank holds 3, 0, 1; then SGLang moves rows."""
        model, layer = self.rank(1, [[0, 1, 2, 3, 0, 1]])
        new = deepseek("marlin", {("model", 0): random_layer(2, 4, 256, 128, False)})
        new.write(self.directory + "2")
        options.placed.map = [[0, 1, 2, 2, 3, 1]]
        updater = sglang.WeightUpdater(sglang.Layers(model))
        self.assertTrue(updater.update_weights_from_disk(self.directory + "2", "auto")[0])
        expected = new.expected(("model", 0))
        all_same(self, new, layer, {key: t[[2, 3, 1]] for key, t in expected.items()})

    def test_fused_shared_experts_are_refused(self):
        options.placed.map = [[0, 1, 2, 3, 0, 1]]
        self.refuses("has 8 experts (fused shared ones?), packed are 4", self.checkpoint, experts=8, ep_size=2)


class Offloaded(SglangCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(setattr, options.offloaders, "current", None)

    def served(self, checkpoint, bytes_at_most):
        offloader = options.offloaders.current = options.OffloaderV1(bytes_at_most)
        layer, = self.serve(checkpoint, cpu_offload_gb=1, before_processing=lambda model: offloader.maybe_offload_to_cpu(
            Block(model.experts[0])))
        return offloader, layer

    def test_what_is_read_goes_where_the_engine_wants_it(self):
        for backend in ("marlin", "triton-hopper", "flashinfer-cutlass"):
            with self.each(backend=backend):
                checkpoint = gpt_oss(backend)
                offloader, layer = self.served(checkpoint, 1 << 30)
                all_same(self, checkpoint, layer, checkpoint.expected(("model", 0)))
                self.assertEqual(len(layer.mxfp4_pack.to_host), 6)
                self.assertGreater(offloader._cpu_offload_bytes, 16)
                self.assertEqual(len(offloader.wrapped), 1)

    def test_no_more_is_moved_than_the_engine_may(self):
        _, layer = self.served(gpt_oss("marlin"), 17)
        self.assertEqual(layer.mxfp4_pack.to_host, {"w13_weight"})

    def test_new_weights_are_refused(self):
        _, layer = self.served(gpt_oss("marlin"), 1 << 30)
        done, message = sglang.WeightUpdater([layer]).update_weights_from_disk(self.directory, "auto")
        self.assertFalse(done)
        self.assertIn("experts are in the host's memory", message)


@contextmanager
def released(model):
    """What a release and a resumption of SGLang's are to its weights."""
    updater = sys.modules[SRT + "managers.scheduler_components.weight_updater"]
    state = updater._export_static_state(model)
    yield
    updater._import_static_state(model, state)


class Released(SglangCase):
    def test_all_is_there_after_new_weights(self):
        for backend in ("marlin", "flashinfer-cutlass"):
            with self.each(backend=backend):
                checkpoint = gpt_oss(backend)
                layers = self.serve(checkpoint, [LAYER], enable_memory_saver=True)
                layer, = layers
                before = {name: p.clone() for name, p in layer.named_parameters()}
                tensors = [*layer.parameters(), *([layer.workspace] if backend == "marlin" else [])]
                with released(layers.model):
                    for tensor in tensors:
                        tensor.data.view(torch.uint8).fill_(0x5A)
                done, message = sglang.WeightUpdater(layers).update_weights_from_disk(self.directory, "auto")
                self.assertTrue(done, message)
                for name, parameter in layer.named_parameters():
                    same(self, parameter.data, before[name].data, name)
                if backend == "marlin":
                    self.assertFalse(layer.workspace.any())


if __name__ == "__main__":
    main()
