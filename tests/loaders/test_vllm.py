"""The vLLM loader against stand-ins of the engine's classes."""

import copy
import json
import os
import pickle
from types import SimpleNamespace
from unittest import main, mock

import torch
from safetensors.torch import load_file, save_file

import vllm_stand_in as vllm
from golden import same
from mxfp4_pack import Manifest
from packed_dir import Checkpoint, merged, random_layer, read_whole, write_manifest
from refusal_cases import Refusals
from vllm_case import DEEPSEEK, GPT, VllmCase, deepseek, gpt_oss, held, quantization


class Vllm(Refusals, VllmCase):
    make = staticmethod(gpt_oss)

    def all_same(self, layer, expected):
        for key, want in expected.items():
            same(self, held(layer, key), want, key)
        self.assertEqual(layer.quant_method.moe_kernel[0], "kernel")

    def test_every_backend_and_family(self):
        for make, prefix in ((gpt_oss, GPT), (deepseek, DEEPSEEK)):
            for backend in ("marlin", "flashinfer-cutlass", "triton-hopper"):
                with self.each(family=make.__name__, backend=backend):
                    checkpoint = make(backend)
                    layer = self.serve(checkpoint, prefix.format(0))
                    self.all_same(layer, checkpoint.expected(("model", 0)))
                    self.assertEqual(layer.quant_method.mxfp4_backend.name in ("TRITON", "TRITON_UNFUSED"),
                                     backend == "triton-hopper")

    def test_raw_parameters_have_no_memory(self):
        seen = []

        def look(layers):
            seen.extend(p for layer in layers.values() for p in layer.parameters())

        self.serve(gpt_oss("marlin"), before_processing=look)
        self.assertEqual(len(seen), 6)
        self.assertTrue(all(p.is_meta for p in seen))

    def test_one_line_in_the_log(self):
        layers = {("model", n): random_layer(n, 2, 256, 128, True) for n in range(3)}
        checkpoint = Checkpoint("vllm", "marlin", "gpt_oss", 256, 128, layers)
        with self.assertLogs("vllm.mxfp4_pack", "INFO") as log:
            self.serve_all(checkpoint, [GPT.format(n) for n in range(3)])
        line, = (line for line in log.output if " are read" not in line)  # on a slow machine also how far the reads are
        self.assertIn(f"{self.directory}: marlin of vllm, layout version 1, MoE tensor-parallel rank 0 of 1", line)
        self.assertIn("canary equal; 3 layers, ", line)

    def test_fp8_checkpoints_that_say_where_their_experts_are_mxfp4(self):
        with mock.patch.object(quantization, "get_quantization_config", str):
            for source, want in (({"store_dtype": "mxfp4"}, "fp8"), ({"routed_experts_quant_method": "mxfp4"}, "fp8"),
                                 ({}, "deepseek_v4_fp8")):
                self.assertEqual(quantization.engine_config(source | {"quant_method": "fp8"}, None), want)

    def test_layers_have_limits_of_their_own_where_the_config_has_none_for_all(self):
        checkpoint = deepseek("marlin", {("model", 0): random_layer(1, 2, 256, 128, False)})
        checkpoint.swiglu_limit = 0.0
        self.serve(checkpoint, DEEPSEEK.format(0), swiglu_limit=3.0)

    def test_conversion_function_is_put_back(self):
        name = "convert_gpt_oss_weight_to_mxfp4_moe_kernel_format"
        self.serve(gpt_oss("marlin"))
        self.assertIs(getattr(quantization.engine, name), getattr(vllm, name))
        self.refuses("swiglu_limit", swiglu_limit=3.0)
        self.assertIs(getattr(quantization.engine, name), getattr(vllm, name))

    def test_triton_keeps_the_side_effects_of_the_conversion(self):
        vllm.kernel_options.clear()
        layer = self.serve(gpt_oss("triton-hopper"))
        self.assertEqual(vllm.kernel_options, {"split_k": 1})
        self.assertEqual([n for n, _ in layer.named_parameters()], ["w13_bias", "w2_bias"])

    def test_tensor_parallel_ranks_read_their_own_set(self):
        ranks = [random_layer(r, 2, 256, 128, True) for r in range(2)]
        checkpoint = Checkpoint("vllm", "marlin", "gpt_oss", 256, 128, {("model", 0): ranks})
        for rank in range(2):
            self.all_same(self.serve(checkpoint, tp=(2, rank)), checkpoint.expected(("model", 0), rank))
        message = self.refuses("marlin (MoE tensor-parallel size 2); asked for is auto, rank 0 of 1", checkpoint)
        self.assertIn("mxfp4-pack convert", message)

    def test_expert_parallel_ranks_read_rows(self):
        for backend in ("marlin", "triton-hopper"):
            checkpoint = gpt_oss(backend, {("model", 0): random_layer(5, 6, 320, 352, True)})
            expected = checkpoint.expected(("model", 0))
            for owned in ([0, 1, 2], [3, 4, 5], [1, 3, 5]):
                with self.each(backend=backend, experts=owned):
                    expert_map = torch.full((6,), -1)
                    expert_map[owned] = torch.arange(3)
                    layer = self.serve(checkpoint, expert_map=expert_map)
                    for key, want in expected.items():
                        got = held(layer, key)
                        self.assertEqual(got.stride()[1:], want.stride()[1:], key)
                        self.assertTrue(torch.equal(got.contiguous().view(torch.uint8),
                                                    want[owned].contiguous().view(torch.uint8)), key)

    def test_draft_layers_are_numbered_on(self):
        layers = {("model", 0): random_layer(1, 2, 256, 128, False), ("model", 1): random_layer(2, 2, 256, 128, False),
                  ("mtp", 0): random_layer(3, 2, 256, 128, False)}
        checkpoint = deepseek("marlin", layers)
        made = self.serve_all(checkpoint, [DEEPSEEK.format(n) for n in range(3)], swiglu_limit=10.0)
        for number, key in enumerate(layers):
            self.all_same(made[DEEPSEEK.format(number)], checkpoint.expected(key))
        self.refuses("no packed experts of mtp layer 1", checkpoint, DEEPSEEK.format(3))

    def test_draft_layers_of_qwen_are_numbered_from_0(self):
        layers = {("model", 0): random_layer(1, 2, 256, 128, False), ("mtp", 0): random_layer(3, 2, 256, 128, False)}
        checkpoint = deepseek("marlin", layers)
        names = [DEEPSEEK.format(0), "mtp.layers.0.mlp.experts"]
        made = self.serve_all(checkpoint, names, swiglu_limit=10.0)
        for name, key in zip(names, layers):
            self.all_same(made[name], checkpoint.expected(key))

    def test_dummy_reads_nothing(self):
        checkpoint = gpt_oss("marlin")
        checkpoint.write(self.directory)
        for file in os.listdir(os.path.join(self.directory, "packed")):
            if file.endswith(".safetensors"):
                os.remove(os.path.join(self.directory, "packed", file))
        layer = self.serve(checkpoint, load_format="dummy")
        for key, want in checkpoint.expected(("model", 0)).items():
            self.assertEqual((held(layer, key).dtype, held(layer, key).shape), (want.dtype, want.shape))

    def test_without_the_plugin_the_method_is_unknown(self):
        kept = dict(vllm.methods)
        vllm.methods.clear()
        self.addCleanup(vllm.methods.update, kept)
        with self.assertRaisesRegex(ValueError, "Unknown quantization method: mxfp4_pack"):
            self.serve(gpt_oss("marlin"))

    def test_a_mismatch_names_what_the_environment_lacks(self):
        gpt_oss("marlin").write(self.directory)
        packed = Manifest(self.directory, "vllm").pick("auto", 1, 0)
        packed.fields["requires"]["VLLM_HUMMING_X"] = "1"
        self.assertIn("its kernel wants VLLM_HUMMING_X=1 in the environment", str(packed.mismatch("why")))
        with mock.patch.dict(os.environ, VLLM_HUMMING_X="1"):
            self.assertNotIn("VLLM_HUMMING_X", str(packed.mismatch("why")))

    def test_another_converter_is_refused(self):
        vllm.converter_bug.value = True
        for backend in ("marlin", "triton-hopper"):
            with self.each(backend=backend):
                self.refuses("it makes other bytes of the canary (w2 codes: bytes differ)", gpt_oss(backend))

    def test_files_that_disagree_with_the_manifest_are_refused(self):
        checkpoint = gpt_oss("marlin")
        checkpoint.write(self.directory)
        path = os.path.join(self.directory, "packed/packed-00001.safetensors")
        tensors = load_file(path)
        name = "model.layers.0.mlp.experts.w13_weight_scale"
        save_file(tensors | {name: tensors[name].view(torch.uint8)}, path)
        self.refuses("dtype is torch.uint8, manifest: float8_e8m0fnu", checkpoint)
        save_file(tensors | {name: tensors[name][:, 1:].contiguous()}, path)
        self.refuses("shape is", checkpoint)

    def test_another_backend_is_refused(self):
        self.refuses("packed for marlin (MoE tensor-parallel size 1); asked for is triton", moe_backend="triton")

    def test_the_set_is_chosen_by_backend_and_tensor_parallel_size(self):
        checkpoints = {"triton": gpt_oss("triton-hopper"), "marlin": gpt_oss("marlin")}
        two = Checkpoint("vllm", "marlin", "gpt_oss", 320, 352,
                         {("model", 0): [random_layer(r, 2, 320, 352, True) for r in range(2)]})
        merged(self.directory, *checkpoints.values(), two)
        for asked, want in (("auto", "triton"), ("triton", "triton"), ("marlin", "marlin")):
            with self.subTest(asked=asked):
                layer = self.serve(checkpoints[want], moe_backend=asked)
                self.all_same(layer, checkpoints[want].expected(("model", 0)))
        for rank in range(2):
            self.all_same(self.serve(two, tp=(2, rank)), two.expected(("model", 0), rank))
        self.refuses("asked for is triton, rank 0 of 2", two, moe_backend="triton", tp=(2, 0))

    def test_a_rank_that_is_not_there_is_refused(self):
        checkpoint = gpt_oss("marlin")
        checkpoint.write(self.directory)
        manifest = read_whole(self.directory)
        manifest["sets"][0].update(moe_tp_size=2)
        for tensor in manifest["sets"][0]["tensors"]:
            tensor["rank"] = 1
        write_manifest(self.directory, manifest)
        self.refuses("moe_tp_size: 2, but 1 ranks, up to 1, have tensors", checkpoint, tp=(2, 0))

    def test_the_advice_keeps_the_layout_of_a_set_that_several_kernels_read(self):
        checkpoint = gpt_oss("triton-hopper")
        checkpoint.write(self.directory)
        path = os.path.join(self.directory, "mxfp4-pack.json")
        with open(path) as file:
            manifest = json.load(file)
        manifest["sets"][0]["requires"]["moe_backend"] = "triton or triton_unfused"
        write_manifest(self.directory, manifest)
        message = self.refuses("asked for is triton_unfused, rank 0 of 2", checkpoint, moe_backend="triton_unfused", tp=(2, 0))
        self.assertIn(f"--layout-version {manifest['sets'][0]['layout_version']} --tp-size 2 --add", message)

    def test_a_kernel_that_the_engine_chose_otherwise_is_refused(self):
        self.enterContext(mock.patch.dict(vllm.ASKED, marlin=vllm.Backend.TRITON))
        self.refuses("vLLM chose TRITON, the experts are packed for marlin")

    def test_settings_that_are_refused(self):
        for setting, name in (({"cpu_offload_gb": 4}, "--cpu-offload-gb"), ({"offload_group_size": 2}, "--offload-group-size")):
            with self.subTest(setting=name):
                self.assertIn("unpack", self.refuses(name, **setting))

    def test_other_sizes_and_layers_are_refused(self):
        checkpoint = gpt_oss("marlin")
        checkpoint.write(self.directory)
        self.addCleanup(setattr, checkpoint, "hidden", 320)
        checkpoint.hidden = 1024
        self.refuses("it pads (hidden, intermediate) to (1024, 384), packed is (512, 384)", checkpoint)
        checkpoint.hidden = 320
        self.refuses("asks for 3 experts", checkpoint, experts=3)
        self.refuses("lacks biases", checkpoint, has_bias=False)
        self.refuses("no packed experts", checkpoint, GPT.format(7))

    def test_other_manifests_are_refused(self):
        checkpoint, _ = self.written()
        good = read_whole(self.directory)
        for change, message in (
                (lambda m: m.update(format_version=4), "format_version is 4, this loader reads 3"),
                (lambda m: m.update(needs=["x"]), "mxfp4-pack.json: needs x, which this loader does not know"),
                (lambda m: m["sets"][0].update(needs=["x"]), "needs x, which this loader does not know"),
                (lambda m: m["sets"][0].update(engine="sglang"), "was packed for sglang, not for vllm"),
                (lambda m: m["source"].update(model_type="deepseek_v4"), "holds experts of deepseek_v4"),
                (lambda m: m["sets"][0].update(backend="flashinfer-cutedsl"),
                 "no loader for experts packed for backend flashinfer-cutedsl")):
            manifest = copy.deepcopy(good)
            change(manifest)
            write_manifest(self.directory, manifest)
            with self.subTest(message=message):
                self.refuses(message, checkpoint)
        os.remove(os.path.join(self.directory, "mxfp4-pack.json"))
        self.refuses("mxfp4-pack.json is missing")

    def test_a_set_environment_variable_is_refused(self):
        with mock.patch.dict(os.environ, MXFP4_PACK_TEST_VARIABLE="fp8"):
            self.refuses("the environment variable MXFP4_PACK_TEST_VARIABLE changes the bytes")

    def test_newer_format_is_refused_before_the_manifest(self):
        checkpoint = gpt_oss("marlin")
        checkpoint.write(self.directory, format_version=4)
        self.refuses("format_version is 4", checkpoint)

    def test_a_copy_of_a_config_with_a_part_that_refers_to_it(self):
        config = quantization.without_state(quantization.engine.GptOssMxfp4Config)
        config.manifest, config.parser = "manifest", SimpleNamespace(config=config)
        again = pickle.loads(pickle.dumps(config))
        self.assertEqual(again.manifest, "manifest")
        self.assertIs(again.parser.config, again)

    def test_other_vllm_without_the_function_is_refused(self):
        name = "convert_gpt_oss_weight_to_mxfp4_moe_kernel_format"
        self.addCleanup(setattr, quantization.engine, name, getattr(vllm, name))
        delattr(quantization.engine, name)
        self.refuses(f"the installed vLLM has no {name}")


if __name__ == "__main__":
    main()
