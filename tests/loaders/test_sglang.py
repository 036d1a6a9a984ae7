"""The SGLang loader against stand-ins of the engine's classes."""

import json
import os
import re
import sys
import unittest
from unittest import mock

import torch

from mxfp4_pack import Refused
from packed_dir import Checkpoint, merged, random_layer, write_manifest
from refusal_cases import Refusals
from sglang_case import LAYER, SglangCase, all_same, arguments, deepseek, gpt_oss, hooks, sglang

ALL = [(gpt_oss, "marlin"), (gpt_oss, "flashinfer-cutlass"), (gpt_oss, "triton-hopper"), (deepseek, "marlin"),
       (deepseek, "flashinfer-cutlass")]


class Sglang(Refusals, SglangCase):
    make = staticmethod(gpt_oss)

    def test_every_backend_and_family(self):
        for make, backend in ALL:
            with self.each(family=make.__name__, backend=backend):
                checkpoint = make(backend)
                layer, = self.serve(checkpoint)
                all_same(self, checkpoint, layer, checkpoint.expected(("model", 0)))

    def test_raw_parameters_have_no_memory(self):
        seen = []
        self.serve(gpt_oss("marlin"), before_processing=lambda model: seen.extend(model.parameters()))
        self.assertEqual(len(seen), 6)
        self.assertTrue(all(p.is_meta for p in seen))

    def test_what_the_engine_adds_is_there(self):
        layer, = self.serve(gpt_oss("marlin"))
        self.assertEqual(layer._mxfp4_backend, "marlin")
        self.assertEqual((layer.workspace.device.type, layer.workspace.dtype), ("cpu", torch.int32))

        self.directory += "2"
        layer, = self.serve(gpt_oss("flashinfer-cutlass", {("model", 0): random_layer(3, 4, 320, 352, True)}))
        for name, value in (("alpha", 1.702), ("beta", 1.0), ("limit", 7.0)):
            self.assertTrue(torch.equal(getattr(layer, "swiglu_" + name), torch.full((4,), value)))

        self.directory += "3"
        layer, = self.serve(deepseek("marlin"))
        self.assertFalse([name for name, _ in layer.named_parameters() if "inv" in name])
        self.assertEqual(layer._dsv4_mxfp4_backend, "marlin")

        self.directory += "4"
        layer, = self.serve(deepseek("flashinfer-cutlass"))
        self.assertEqual(layer._dsv4_mxfp4_backend, "flashinfer_cutlass_sm90")
        self.assertTrue(torch.equal(layer.quant_method._swiglu_limit_tensor, torch.full((2,), 10.0)))

        self.directory += "5"
        sglang.kernel_options.clear()
        layer, = self.serve(gpt_oss("triton-hopper"))
        self.assertEqual(sglang.kernel_options, {"split_k": 1})
        self.assertEqual([n for n, _ in layer.named_parameters()], ["w13_weight_bias", "w2_weight_bias"])

    def test_tensor_and_expert_parallel(self):
        ranks = [random_layer(r, 2, 256, 128, True) for r in range(2)]
        checkpoint = Checkpoint("sglang", "marlin", "gpt_oss", 256, 128, {("model", 0): ranks})
        sglang.TP.size = 2
        for sglang.TP.rank in range(2):
            layer, = self.serve(checkpoint)
            all_same(self, checkpoint, layer, checkpoint.expected(("model", 0), sglang.TP.rank))
        sglang.TP.size, sglang.TP.rank = 1, 0
        message = self.refuses("marlin (MoE tensor-parallel size 2); asked for is marlin, rank 0 of 1", checkpoint)
        self.assertIn(f"convert CHECKPOINT {self.directory} --engine sglang --backend marlin --layout-version 1 --add", message)

        self.directory += "2"
        checkpoint = gpt_oss("marlin", {("model", 0): random_layer(5, 6, 320, 352, True)})
        for sglang.TP.ep_rank in range(3):
            layer, = self.serve(checkpoint, ep_size=3)
            rows = slice(2 * sglang.TP.ep_rank, 2 * sglang.TP.ep_rank + 2)
            all_same(self, checkpoint, layer, {k: t[rows] for k, t in checkpoint.expected(("model", 0)).items()})

    def test_draft_layer(self):
        layers = {("model", 0): random_layer(1, 2, 256, 128, False), ("mtp", 0): random_layer(3, 2, 256, 128, False)}
        checkpoint = deepseek("marlin", layers)
        for name in ("model.decoder.mlp.experts", "mtp.layers.0.mlp.experts"):
            draft, = self.serve(checkpoint, [(name, 0)])
            all_same(self, checkpoint, draft, checkpoint.expected(("mtp", 0)))
            self.directory += "2"
        draft, = self.serve(checkpoint, [LAYER], draft=True)  # Qwen3-Next's
        all_same(self, checkpoint, draft, checkpoint.expected(("mtp", 0)))
        self.directory += "2"
        for layer, draft in (("model.decoder.mlp.experts", 0), False), (LAYER, True):
            self.refuses("no packed experts of mtp layer 0", deepseek("marlin"), [layer], draft=draft)

    def test_unpacked_models_are_left_alone(self):
        directory = os.path.join(os.path.dirname(self.directory), "raw")
        os.mkdir(directory)
        with open(os.path.join(directory, "config.json"), "w") as file:
            json.dump({"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}}, file)
        layer, = sglang.serve(directory, gpt_oss("marlin"), [LAYER], moe_runner_backend="marlin", enable_eplb=True)
        self.assertEqual(layer.w13_weight.dtype, torch.int32)
        self.assertFalse(hasattr(layer, "mxfp4_pack"))
        self.assertEqual(sglang.ServerArgs(directory).moe_runner_backend, "triton_kernel")

    def test_another_converter_is_refused(self):
        sglang.converter_bug.value = True
        for make, backend in ALL:
            with self.each(family=make.__name__, backend=backend):
                self.refuses("w2 codes: bytes differ", make(backend))

    def test_arguments_that_are_refused(self):
        for given, name in (({"enable_eplb": True}, "--enable-eplb (SGLang's GptOssSparseMoeBlock"),
                            ({"ep_num_redundant_experts": 2}, "--ep-num-redundant-experts"),
                            ({"init_expert_location": "x.pt"}, "--init-expert-location"),
                            ({"offload_group_size": 2}, "--offload-group-size (SGLang's OffloaderV2"),
                            ({"enable_elastic_expert_backup": True}, "--enable-elastic-expert-backup"),
                            ({"load_format": "sharded_state"}, "--load-format sharded_state"),
                            ({"moe_runner_backend": "triton_kernel"}, "asked for is triton_kernel, rank 0 of 1"),
                            ({"speculative_moe_runner_backend": "triton"}, "asked for is triton, rank 0 of 1")):
            with self.subTest(argument=name):
                self.refuses(name, **given)

    def test_another_kernel_is_refused(self):
        class Other(sglang.Mxfp4MoEMethod):
            def __init__(self):
                super().__init__()
                self.use_marlin, self.use_triton_kernels = False, True

        self.refuses("asked for is triton-hopper or triton-blackwell, rank 0 of 1", method=Other)

    def test_a_layer_that_no_hook_met_is_refused(self):
        class Unknown(sglang.Mxfp4MarlinMoEMethod):
            def create_weights(self, layer, **given):
                pass

            def process_weights_after_loading(self, layer):
                pass

        self.refuses("did not load the packed experts of model.layers.0.mlp.experts", method=Unknown)

    def test_missing_hooks_are_refused(self):
        hooked = sglang.Mxfp4MoEMethod.process_weights_after_loading
        self.addCleanup(setattr, sglang.Mxfp4MoEMethod, "process_weights_after_loading", hooked)
        sglang.Mxfp4MoEMethod.process_weights_after_loading = hooked.__wrapped__
        name = "sglang.srt.layers.quantization.mxfp4.Mxfp4MoEMethod.process_weights_after_loading"
        self.refuses(f"the installed SGLang lacks {name}")
        del sglang.Mxfp4MoEMethod.process_weights_after_loading
        self.refuses(f"the installed SGLang lacks {name}")

    def test_the_set_is_chosen_by_runner_and_tensor_parallel_size(self):
        checkpoints = {"flashinfer_mxfp4": gpt_oss("flashinfer-cutlass"), "marlin": gpt_oss("marlin"),
                       "triton_kernel": gpt_oss("triton-hopper")}
        two = Checkpoint("sglang", "marlin", "gpt_oss", 320, 352,
                         {("model", 0): [random_layer(r, 2, 320, 352, True) for r in range(2)]})
        merged(self.directory, *checkpoints.values(), two)
        for runner, checkpoint in checkpoints.items():
            with self.subTest(runner=runner):
                layer, = self.serve(checkpoint, moe_runner_backend=runner)
                all_same(self, checkpoint, layer, checkpoint.expected(("model", 0)))
        layer, = self.serve(gpt_oss("flashinfer-cutlass"))
        all_same(self, gpt_oss("flashinfer-cutlass"), layer, gpt_oss("flashinfer-cutlass").expected(("model", 0)))
        sglang.TP.size = 2
        for sglang.TP.rank in range(2):
            layer, = self.serve(two)  # auto: only Marlin is there for two ranks
            all_same(self, two, layer, two.expected(("model", 0), sglang.TP.rank))
        self.refuses("asked for is triton_kernel, rank 0 of 2", two, moe_runner_backend="triton_kernel")

    def test_other_sizes_and_layers_are_refused(self):
        checkpoint = gpt_oss("marlin")
        checkpoint.write(self.directory)
        self.addCleanup(setattr, checkpoint, "hidden", 320)
        checkpoint.hidden = 1024
        self.refuses("it pads (hidden, intermediate) to (1024, 384), packed is (512, 384)", checkpoint)
        checkpoint.hidden = 320
        self.refuses("has 3 experts", checkpoint, experts=3)
        self.refuses("no packed experts of model layer 7", checkpoint, [("model.layers.7.mlp.experts", 7)])

    def test_arguments_that_are_completed_in_resolve_once(self):
        gpt_oss("marlin").write(self.directory)
        module = sys.modules["sglang.srt.server_args"]
        resolve = sglang.wrapped(sglang.StructArgs.resolve_once, arguments.around, sglang.HookType.AROUND)
        with mock.patch.object(module, "ServerArgs", sglang.StructArgs), \
                mock.patch.object(sglang.StructArgs, "resolve_once", resolve):
            self.assertEqual(arguments.step(), "resolve_once")
            args = sglang.StructArgs(self.directory)
            self.assertEqual(args.moe_runner_backend, "auto")
            args.resolve_once()
            self.assertEqual(args._resolved_overrides, [("model", {"moe_runner_backend": "marlin"})])
            args.resolve_once()  # in a child process, where nothing may be assigned
            with self.assertRaisesRegex(Refused, "--enable-eplb"):
                sglang.StructArgs(self.directory, enable_eplb=True).resolve_once()
            with self.assertRaisesRegex(Refused, "asked for is marlin, rank 0 of 4"):
                sglang.StructArgs(self.directory, tp_size=8, ep_size=2).resolve_once()
        self.assertEqual(arguments.step(), "__post_init__")

    def test_a_hook_that_did_not_run_stops_the_start(self):
        """Every hook is there, but SGLang never called that of its arguments."""
        checkpoint = gpt_oss("marlin")
        checkpoint.write(self.directory)
        with mock.patch.object(sglang.ServerArgs, "__post_init__", sglang.ServerArgs.__post_init__.__wrapped__), \
                mock.patch.object(hooks, "hooked", lambda target: True):
            self.refuses("did not run the plugin's hook ServerArgs.__post_init__", checkpoint)
        other = checkpoint.write(self.directory + "2")
        sglang.ServerArgs(other)
        with self.assertRaisesRegex(Refused, "did not run the plugin's hook"):
            sys.modules["sglang.srt.utils.hf_transformers.config"].get_config(self.directory)

    def test_a_wrong_tensor_parallel_size_is_refused_at_once(self):
        gpt_oss("marlin").write(self.directory)
        with self.assertRaisesRegex(Refused, r"asked for is marlin, rank 0 of 4.*\n?.*--backend marlin --layout-version 1 "
                                    "--tp-size 4 --add"):
            sglang.ServerArgs(self.directory, tp_size=4)
        sglang.ServerArgs(self.directory, tp_size=4, ep_size=4)
        with self.assertRaisesRegex(Refused, "rank 0 of 2"):
            sglang.ServerArgs(self.directory, tp_size=4, moe_dp_size=2)

    def test_the_advice_does_not_loop(self):
        """A command that is proposed makes other bytes than those refused, and is complete."""
        sglang.converter_bug.value = True
        for backend, version, proposed in (("flashinfer-cutlass", "v2-corner", ["v2", "v1-corner", "v1"]),
                                           ("flashinfer-cutlass", "v1", ["v2-corner", "v2", "v1-corner"]),
                                           ("triton-hopper", "c64", ["b64", "b64-pairs"])):
            with self.each(backend=backend, version=version):
                gpt_oss(backend).write(self.directory)
                with open(os.path.join(self.directory, "mxfp4-pack.json")) as file:
                    manifest = json.load(file)
                manifest["sets"][0]["layout_version"] = version
                write_manifest(self.directory, manifest)
                message = self.refuses("bytes differ", gpt_oss(backend))
                self.assertIn(f"--engine sglang --backend {backend} --layout-version {proposed[0]} --force", message)
                self.assertEqual(re.findall("or with --layout-version (.*)", message), proposed[1:])
        self.directory += "2"
        message = self.refuses("bytes differ", gpt_oss("marlin"))
        self.assertIn(f"mxfp4-pack verify {self.directory}", message)
        self.assertIn("serve another backend", message)

    def test_another_runner_is_named_by_its_backend(self):
        for runner, command in (("flashinfer_mxfp4", "--backend flashinfer-cutlass --add"),
                                ("triton_kernel", "--backend triton-hopper --add")):
            self.assertIn(command, self.refuses(f"asked for is {runner}", moe_runner_backend=runner))
        self.assertIn("No loader serves deep_gemm", self.refuses("asked for is deep_gemm", moe_runner_backend="deep_gemm"))

    def test_the_scale_of_later_triton_kernels(self):
        sglang.scale_name.value = "b_mx_scale"
        checkpoint = gpt_oss("triton-hopper")
        layer, = self.serve(checkpoint)
        all_same(self, checkpoint, layer, checkpoint.expected(("model", 0)))

    def test_one_line_in_the_log(self):
        with self.assertLogs("sglang.mxfp4_pack", "INFO") as log:
            layer, = self.serve(gpt_oss("marlin"))
        line, = log.output
        size = sum(p.numel() * p.element_size() for name, p in layer.named_parameters())
        for part in (f"{self.directory}: marlin of sglang, layout version 1, MoE tensor-parallel rank 0 of 1", "canary equal",
                     "of 1; installed sglang ", f"1 layer, {size / 1e9:.3f} GB in ", " GB/s"):
            self.assertIn(part, line)

    def test_a_second_packed_model_is_refused(self):
        checkpoint = gpt_oss("marlin")
        self.serve(checkpoint)
        other = checkpoint.write(self.directory + "2")
        with self.assertRaisesRegex(Refused, "two packed models in one process"):
            sglang.serve(other, checkpoint, [LAYER])


if __name__ == "__main__":
    unittest.main()
