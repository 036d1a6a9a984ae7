"""The converters of formats.py against the golden vectors, which engines' own code made."""

import unittest

import formats
from golden import golden_layer, golden_tensors, same


class Formats(unittest.TestCase):
    def check(self, family, tag, made, names=("w13", "w13_scale", "w13_bias", "w2", "w2_scale", "w2_bias")):
        golden = golden_tensors(family)
        keys = [("w13", "codes"), ("w13", "scales"), ("w13", "bias"), ("w2", "codes"), ("w2", "scales"), ("w2", "bias")]
        for key, name in zip(keys, names):
            if key in made:
                same(self, made[key].view(golden[f"{tag}.{name}"].dtype), golden[f"{tag}.{name}"], f"{family} {tag} {name}")

    def test_marlin(self):
        for family, hidden, intermediate in (("gpt_oss", 512, 384), ("deepseek", 256, 128)):
            raw, pairs = golden_layer(family)
            vllm = formats.pad(raw, pairs, hidden, intermediate, (0, 0))
            self.check(family, "vllm.marlin", formats.marlin(vllm))
            sglang = formats.pad(raw, pairs, hidden, intermediate, (0x7F, 0x7F))
            if pairs:
                sglang = formats.reorder_w13(sglang, formats.gate_up)
            self.check(family, "sglang.marlin", formats.marlin(sglang))

    def test_flashinfer(self):
        names = [f"fc{i}_expert_weights fc{i}_scales fc{i}_expert_biases".split() for i in (1, 2)]
        for family, hidden, intermediate in (("gpt_oss", 384, 384), ("deepseek", 256, 128)):
            raw, pairs = golden_layer(family)
            raw = formats.pad(raw, pairs, hidden, intermediate, (0, 0))
            if pairs:
                raw = formats.reorder_w13(raw, formats.gate_up)
            self.check(family, "flashinfer_cutlass_sm90_v1",
                       formats.flashinfer_sm90_v1(formats.reorder_w13(raw, formats.swap)), names[0] + names[1])

    def test_hopper(self):
        for family, intermediate in (("gpt_oss", 384), ("deepseek", 128)):
            raw, pairs = golden_layer(family)
            hidden = raw["w13", "codes"].shape[2] * 2
            raw = formats.pad(raw, pairs, hidden, intermediate, (0, 0))
            made = {}
            for role in ("w13", "w2"):
                made[role, "codes"] = formats.hopper_codes(raw[role, "codes"]).transpose(1, 2)
                made[role, "scales"] = formats.hopper_scales(raw[role, "scales"], 4).transpose(1, 2)
                if (role, "bias") in raw:
                    made[role, "bias"] = raw[role, "bias"].float()
            self.check(family, "vllm.triton_hopper_a", made)


if __name__ == "__main__":
    unittest.main()
