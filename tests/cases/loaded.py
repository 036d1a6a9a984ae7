"""A layer of each family as an engine's own model class reads it: testdata/golden/families.json, which families_golden.py
and sglang_families_golden.py of tests/engines make, beside the canonical bytes that `convert` writes."""

import hashlib
import json
import re

from case import ROOT, Case, Result, Wrong, verdict_of
from checkpoint import all_tensors, merged, nothing
from twins import FILTER, FORMS, GPT_OSS


def scales_of_dtype(dtype):
    """The experts' scales with this dtype and the same bytes."""
    return merged(
        lambda tensors: {
            name: (dtype if re.search(r"mlp\.experts\..*_scale_inv$", name) else found, shape, data)
            for name, (found, shape, data) in tensors.items()
        }
    )


SIZE = 256  # vLLM does not pad it
HIDDEN = {"kimi-k3": 2 * SIZE}  # half of it in experts
KIND = "experts as the engine's own loader reads them"
SGLANG = {
    "GPT-OSS in SGLang": (GPT_OSS, nothing),
    "DeepSeek-V4 in SGLang": ("deepseek-v4-flash", nothing),
    "Kimi-K3 in SGLang": ("kimi-k3", nothing),
    "MiMo in SGLang": ("mimo-v2.6-flash", nothing),
    "Ling in SGLang": ("ling", scales_of_dtype("F8_E8M0")),  # SGLang takes scales in U8 for numbers, not exponents
    "DeepSeek-R1 in SGLang": ("deepseek-r1-0528-quark", nothing),
    "MiniMax-M2.5 in SGLang": ("minimax-m2.5-quark", nothing),
}
# Parts of a config that engines read and `synth` does not write.
ENGINE_SAYS = {
    "AFMoE": {"route_norm": True, "n_group": 1, "topk_group": 1},
    "Inkling by AutoRound": {
        "n_shared_experts": 2, "shared_expert_sink": True, "n_routed_experts": 8, "intermediate_size": 256
    },
    "DeepSeek-V4 in SGLang": {"n_group": 1, "topk_group": 1},
    "MiMo in SGLang": {
        "hidden_act": "silu",
        "topk_method": "noaux_tc",
        "norm_topk_prob": True,
        "n_group": 1,
        "topk_group": 1,
        "scoring_func": "sigmoid",
        "encoder_only": False,
        "tie_word_embeddings": False,
    },
    "DeepSeek-R1 in SGLang": {
        "hidden_act": "silu",
        "topk_method": "noaux_tc",
        "norm_topk_prob": True,
        "n_group": 1,
        "topk_group": 1,
        "q_lora_rank": None,
    },
    "Ling in SGLang": {"moe_router_enable_expert_bias": True, "tie_word_embeddings": False},
}


def read_golden():
    return json.loads((ROOT / "testdata/golden/families.json").read_text())


def parameter(role, part, name, rows, row_bytes, order):
    """A parameter of a layout file whose rows and bytes stay in their places."""
    return {
        "role": role,
        "part": part,
        "name": name,
        "dtype": "U8",
        "torch_dtype": "uint8",
        "shape": [rows, row_bytes],
        **order,
        "row_bytes": row_bytes,
        "pad": {"row": 0, "column": 0, "storage": 0},
        "add": 0,
        "storage": {"rows": rows, "bytes": row_bytes},
        "modes": [[row_bytes * 8, 0, 1], [rows, 1, 0]],
    }


def as_loaded(engine, version):
    """A layout file: all rows of gate, then those of up."""
    halves = {"rows": {"block": 0, "first": "gate"}}
    size = {"hidden": SIZE, "intermediate": SIZE}
    return {
        "mxfp4_pack_layout": 1,
        "name": "loaded",
        "engine": engine,
        "size": size,
        "padded": size,
        "made_with": {engine: version},
        "tensors": [
            parameter("w13", "codes", "w13_weight", 2 * SIZE, SIZE // 2, halves),
            parameter("w13", "scales", "w13_weight_scale", 2 * SIZE, SIZE // 32, halves),
            parameter("w2", "codes", "w2_weight", SIZE, SIZE // 2, {}),
            parameter("w2", "scales", "w2_weight_scale", SIZE, SIZE // 32, {}),
        ],
    }


def as_bf16(data):
    """F32 numbers that were BF16, as SGLang keeps biases."""
    out = bytearray(len(data) // 2)
    out[0::2], out[1::2] = data[2::4], data[3::4]
    return bytes(out)


def compared(bench):
    """Converted to the rows that the engine loaded; GPT-OSS, which has pairs and biases, by a kernel that reads those."""
    expected = read_golden()[bench.case.instance]
    (bench.folder / "loaded.json").write_text(json.dumps(as_loaded(*expected["engine"].split())))
    by_file, by_kernel = ("--layout", "loaded.json"), ("--backend", "canonical", "--engine", "sglang")
    done = bench.run("convert", "ckpt", "out", *(by_kernel if bench.case.model in (GPT_OSS, FILTER) else by_file), "--no-loader")
    if done.returncode:
        raise Wrong(done.stderr)
    made = [*all_tensors(bench.folder / "out").values(), *all_tensors(bench.folder / "out/packed").values()]
    found = {hashlib.sha256(as_bf16(data) if dtype == "F32" else data).hexdigest() for dtype, _, data in made}
    for part, checksum in expected.items():
        if part.startswith("w") and checksum not in found:
            raise Wrong(f"no tensor of OUT has the bytes of {part} in {expected['class']}")
    bench.must_say(bench.must(0, "verify", "out", "--source", "ckpt"), "right at level ", "verify")
    bench.must(0, "unpack", "out", "again")
    if all_tensors(bench.folder / "again") != all_tensors(bench.ckpt):
        raise Wrong("unpack gives other tensors")
    return Result(verdict_of(done), [f"{expected['engine']} {expected['class']}"])


def case_of(form):
    model, make = (FORMS | SGLANG)[form]
    hidden = HIDDEN.get(model, SIZE)
    return Case(KIND, form, model, make, options=("--hidden", str(hidden), "--intermediate", str(SIZE), "--layers", "2"), act=compared)


CASES = [case_of(form) for form in read_golden()]
