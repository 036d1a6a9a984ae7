"""Layouts learned from an engine: a stand-in that slices whole checkpoint tensors itself, in right and in wrong ways."""

import contextlib
import io
import json
import os
import tempfile
import unittest
from types import SimpleNamespace
from unittest import mock

import torch

from mxfp4_pack.learn import NoRearrangement, __main__ as command
from mxfp4_pack.learn import engine, held, model

CONFIG = {"model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 160, "hidden_act": "silu",
          "quantization_config": {"quant_method": "mxfp4"}}
OTHER = {"model_type": "deepseek_v4", "hidden_size": 64, "moe_intermediate_size": 128, "hidden_act": "silu",
         "quantization_config": {"quant_method": "fp8"}}


def adapter(change=lambda made, conversion, whole: made):
    """An adapter for an engine whose kernel reads the rank's share unchanged, in buffers of the first rank's size.
    change: introduces a fault."""
    class Conversion:
        def __init__(self, of, moe_backend, tp_size, rank):
            self.of, self.rank, self.begin_end = of, rank, of.share(tp_size, rank)
            self.size = of.share(tp_size, 0)[1]
            self.whole = model.Whole(of, tp_size, rank)

        def __call__(self, tensors):
            whole = self.whole(tensors)
            return change({f"{role}_{part}": self.share(role, part, t) for (role, part), t in whole.items()}, self, whole)

        def share(self, role, part, t):
            begin, end = self.begin_end
            per = {"codes": 2, "scales": 32}.get(part, 1)
            if (role, part) == ("w2", "bias"):
                return t.clone() if self.rank == 0 else torch.zeros_like(t)
            if role == "w2":
                out = torch.zeros((*t.shape[:2], self.size // per), dtype=t.dtype)
                out[:, :, :(end - begin) // per] = t[:, :, begin // per:end // per]
                return out
            halves = [t] if self.of.is_gpt_oss else t.chunk(2, dim=1)
            n = 2 if self.of.is_gpt_oss else 1
            out = []
            for half in halves:
                out.append(torch.zeros((len(t), n * self.size, *t.shape[2:]), dtype=t.dtype))
                out[-1][:, :n * (end - begin)] = half[:, n * begin:n * end]
            return torch.cat(out, 1)

    return SimpleNamespace(Conversion=Conversion, LIBRARIES=("numpy", "no-such-library"))


class LearnEngine(unittest.TestCase):
    def setUp(self):
        self.dir = self.enterContext(tempfile.TemporaryDirectory())
        self.said = io.StringIO()
        self.enterContext(contextlib.redirect_stderr(self.said))

    def config(self, config):
        path = os.path.join(self.dir, "config.json")
        with open(path, "w") as file:
            json.dump(config, file)
        return path

    def learn(self, config, tp, made=None):
        with mock.patch.object(engine.importlib, "import_module", lambda *name: made or adapter()):
            return engine.learn_from(engine.Engine("vllm", self.config(config), "auto", tp))

    def test_ranks_get_their_share_of_whole_tensors(self):
        for config, tp, intermediate in ((CONFIG, 1, 160), (CONFIG, 2, 96), (CONFIG, 4, 64), (OTHER, 4, 32)):
            with self.subTest(config=config["model_type"], tp=tp):
                (size, padded, tensors, _), versions = self.learn(config, tp)
                self.assertEqual((size.hidden, size.intermediate), (64, intermediate))
                self.assertEqual(padded, (64, intermediate))
                self.assertEqual(len(tensors), 6 if config is CONFIG else 4)
                codes = next(t for t in tensors if t.name == "w13")
                self.assertEqual(codes.fit.block, 1 if config is CONFIG else 0)
                self.assertIn("numpy", versions)
                self.assertNotIn("no-such-library", versions)

    def refused(self, message, config, tp, change):
        with self.assertRaisesRegex(NoRearrangement, message):
            self.learn(config, tp, adapter(change))

    def test_ranks_that_differ_are_refused(self):
        def from_zero(made, conversion, whole):
            """All ranks get the first one's columns."""
            step = made["w2_codes"].shape[2]
            return made | {"w2_codes": whole["w2", "codes"][:, :, :step].clone()}

        def several_pads(made, conversion, whole):
            if conversion.rank:
                made["w2_scales"][:, ::2, -1] = 127
            return made

        self.refused("rank 2 differs from rank 0: w2_codes: expert 0, byte .*: wanted", OTHER, 4, from_zero)
        self.refused("rank 2 differs from rank 0: w2_scales", CONFIG, 4, several_pads)

    def test_pads_of_ranks_with_fewer_columns(self):
        """The first rank shows no pads of rows, and none of w2's columns."""
        def pads(made, conversion, whole):
            if conversion.rank:
                made["w2_scales"][:, :, -1] = 126
            return made | {"w13_scales": torch.nn.functional.pad(made["w13_scales"], (0, 2), value=127)}

        learned, _ = self.learn(CONFIG, 4, adapter(pads))
        found = {t.name: t.pad for t in learned.tensors}
        self.assertEqual(found["w2_scale"]["column"], 126)
        self.assertEqual(found["w13_scale"], {"row": 0, "column": 127, "corner": 127, "storage": None})
        entry = next(t.to_json() for t in learned.tensors if t.name == "w13_scale")
        self.assertEqual(entry["pad"], {"row": 0, "column": 127, "corner": 127, "storage": 0})

    def test_a_column_of_another_rank_is_refused(self):
        def shifted(made, conversion, whole):
            begin, end = (n // 2 for n in conversion.begin_end)
            return made | {"w2_codes": whole["w2", "codes"][:, :, begin + 1:end + 1].clone()}
        self.refused("w2_codes: bit 0 of w2, expert 0, is stored 0 times", OTHER, 4, shifted)

        def in_pads(made, conversion, whole):
            """Data outside of the rank's share replaces pads."""
            end = conversion.begin_end[1]
            return made | {"w2_codes": whole["w2", "codes"][:, :, :2 * (end // 2)].clone()}
        self.refused("w2_codes: expert 0, byte .*: wanted", OTHER, 4, in_pads)

    def test_tensors_without_experts(self):
        def workspace(made, conversion, whole):
            return made | {"workspace": torch.zeros(7), "limit": torch.tensor(7.0)}

        def total(made, conversion, whole):
            return made | {"total": made["w2_codes"].sum()}

        self.assertEqual(len(self.learn(OTHER, 1, adapter(workspace))[0].tensors), 4)
        self.refused("total: no tensor of 2 experts", OTHER, 1, total)

    def test_the_command_writes_what_the_engine_answers(self):
        path = os.path.join(self.dir, "learned.json")
        arguments = ["--engine", "vllm", "--model", self.config(OTHER), "--moe-backend", "a b", "--tp-size", "4"]
        settings = {"VLLM_HUMMING_INPUT_QUANT_CONFIG": "{}", "VLLM_API_KEY": "secret"}
        with mock.patch.object(engine.importlib, "import_module", lambda *name: adapter()):
            with mock.patch.dict(os.environ, settings):
                self.assertEqual(command.main([*arguments, "-o", path]), 0)
            self.assertEqual(command.main([*arguments, "--check", path]), 0)
        with open(path) as file:
            made = json.load(file)
        self.assertEqual((made["name"], made["engine"], made["size"]),
                         ("a-b", "vllm", {"hidden": 64, "intermediate": 32}))
        self.assertLessEqual({"numpy", "torch", "moe-backend", "tp-size", "VLLM_HUMMING_INPUT_QUANT_CONFIG"},
                             set(made["made_with"]))
        self.assertNotIn("VLLM_API_KEY", made["made_with"])

    def test_a_file_is_checked_against_the_installed_engine(self):
        def released(made, conversion, whole):
            """The next release stores w2's rows in another order."""
            return made | {"w2_codes": made["w2_codes"].flip(1)}

        def loose(made, conversion, whole):
            """Bytes that are not written."""
            wide = torch.empty((*made["w2_codes"].shape[:2], 64), dtype=torch.uint8)
            wide[:, :, :made["w2_codes"].shape[2]] = made["w2_codes"]
            return made | {"w2_codes": wide}

        path = os.path.join(self.dir, "learned.json")
        for change in (loose, lambda made, *rest: made):
            arguments = ["--engine", "vllm", "--model", self.config(CONFIG), "--tp-size", "2"]
            with mock.patch.object(engine.importlib, "import_module", lambda *name: adapter(change)):
                self.assertEqual(command.main([*arguments, "-o", path]), 0)
                self.assertEqual(command.main([*arguments, "--check", path]), 0)
            with mock.patch.object(engine.importlib, "import_module", lambda *name: adapter(released)):
                self.assertEqual(command.main([*arguments, "--check", path]), 2)
            self.assertIn("w2_codes: ", self.said.getvalue().splitlines()[-1])
            os.remove(path)

    def test_the_command_refuses_in_one_line_and_writes_nothing(self):
        path = os.path.join(self.dir, "learned.json")
        arguments = ["--engine", "vllm", "--model", self.config(OTHER), "-o", path]
        cases = {"the installed vllm cannot be asked: ImportError: No module named 'vllm'": ImportError("No module named 'vllm'"),
                 "no whole groups of 32": None}
        for message, error in cases.items():
            def imported(*name, error=error):
                if error:
                    raise error
                return adapter()
            more = [] if error else ["--tp-size", "3"]
            with mock.patch.object(engine.importlib, "import_module", imported):
                self.assertEqual(command.main(arguments + more), 2)
            self.assertIn(message, self.said.getvalue())
        self.assertEqual(self.said.getvalue().count("error: "), 2)
        self.assertFalse(os.path.exists(path))
        for text, message in (("{", "not JSON"), ("{}", "no model_type")):
            with open(os.path.join(self.dir, "config.json"), "w") as file:
                file.write(text)
            with self.assertRaisesRegex(NoRearrangement, message):
                model.read_model(self.dir)

    def test_sizes_in_configs_of_every_form(self):
        says = {"hidden_size": 512, "moe_intermediate_size": 96}
        quantized = {"quantization_config": {"quant_method": "quark"}, "model_type": "a"}
        nested = {"thinker_config": {"text_config": says}}
        for form, sizes in (({"text_config": says}, (512, 96)), ({"llm_config": says}, (512, 96)), (nested, (512, 96)),
                            (says | {"moe_hidden_size": 256}, (256, 96)),
                            ({"hidden_size": 512, "expert_ffn_hidden_size": 64, "intermediate_size": 32}, (512, 64)),
                            ({"hidden_size": 512, "intermediate_size": 32}, (512, 32))):
            with open(os.path.join(self.dir, "config.json"), "w") as file:
                json.dump(form | quantized, file)
            read = model.read_model(self.dir)
            self.assertEqual((read.hidden, read.intermediate), sizes)
            self.assertEqual(read.quantization, {"quant_method": "quark"})

    def test_what_a_layer_holds(self):
        def wrapped(tensor):
            return SimpleNamespace(storage=SimpleNamespace(data=tensor))

        layer, raw, packed, codes = torch.nn.Module(), torch.zeros(2, 3), torch.ones(2, 5), torch.ones(2, 4)
        layer.register_parameter("w2_weight_scale", torch.nn.Parameter(raw))
        layer.register_buffer("w2_bias", torch.ones(2))
        layer.w2_weight = wrapped(codes)
        method = SimpleNamespace(w2_precision_config=SimpleNamespace(weight_scale=wrapped(packed), other=3), table=raw)
        found = held.tensors_of(layer, method)
        self.assertIs(found["w2_weight_scale"], packed)  # the kernel's, not the raw parameter
        self.assertIs(found["w2_weight"], codes)
        self.assertIn("w2_bias", found)


if __name__ == "__main__":
    unittest.main()
