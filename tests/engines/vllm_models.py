"""The vLLM loader in the classes of models that vLLM has, on a machine without a GPU: the table `models` of matrix.json.

    MXFP4_PACK=build/mxfp4-pack MXFP4_PACK_LIBRARY=build/libmxfp4_pack.so VLLM_MARLIN_SOURCE=.. \
        PYTHONPATH=VLLM:DEPENDENCIES:src/loaders:tests/loaders python3 tests/engines/vllm_models.py

The checkpoints are those of tests/cases/loaded.py. Each rank makes the model's own MoE block twice, in an otherwise empty
model. One has the engine's config, and the model's load_weights gets the checkpoint's tensors. The other has the loader's
config, and load_weights gets OUT's. The methods convert both, and then all parameters of both blocks must agree: experts,
router and shared experts. Exchanged is what vllm_classes.py and families_golden.py exchange. MXFP4_PACK_FORMS is a pattern.
"""

import json
import os
import re
import tempfile
import unittest
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.multiprocessing

import cells
import families_golden as families
import vllm_classes
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.model_executor.layers.quantization import get_quantization_config

TP_SIZES = 1, 2
CASES = [vllm_classes.Case("cutlass-mxfp4", "", (None, "CUTLASS_MXFP4_MXFP4"), "cpu",
                           note="its own classes and functions, without a GPU")]
if vllm_classes.MARLIN_SOURCE:
    CASES += [vllm_classes.Case("marlin", "", ("MARLIN", "MARLIN"), "cpu", note=vllm_classes.MARLIN)]
WITHOUT_CUTLASS = {"Granite", "Inkling by Quark", "privacy filter"}
BLOCK = r"(mlp|block_sparse_moe)\."  # of the models whose classes make the block; Gemma-4's and others make it in a layer
BARE = {"Gemma-4", "Gemma-4's gate_up_proj", "privacy filter", "AutoRound", "compression_config", "gate_up_proj_packed"}
# Forms that vLLM 0.33.0 does not read from the checkpoint.
UNREAD = {
    "Gemma-4's w13": "gemma4.py loads none of w13_weight, w2_weight and their scales, and does not say so",
    "gate_up_proj": "RoutedExperts has no parameter 'w13_weight.weight_packed' for gate_up_proj.weight_packed",
    "Muse Spark": "on NVIDIA it serves NVFP4 alone; on ROCm its class takes a method of its own, so the loader refuses",
    "privacy filter, quant_method mxfp4": "Mxfp4Config gives it DeepSeek-V4's method, and RoutedExperts then raises: "
                                          "shard_id must be ['w1','w2','w3'] but got None",
}


class Blocks(vllm_classes.Layers):
    """Compares the blocks of one rank."""

    def __init__(self):
        super().__init__("run")

    def run(self):
        """unittest demands a method."""

    def block(self, form, folder, make_quant):
        """The model's class and its block, loaded and converted."""
        config = families.config_of(form, folder)
        with families.on_cpu(config):
            model, block = families.empty_model(form, config, make_quant())
            families.filled(block)
            names = () if form in BARE else (BLOCK,)
            model.load_weights(iter(families.tensors_of_block(families.LOADERS[form][1], folder, *names).items()))
            experts = families.experts_of(block)
            experts.quant_method.process_weights_after_loading(experts)
        return type(model), block

    def packed_config(self, out):
        model_type = json.loads((out / "config.json").read_text())["model_type"]
        hf_config = SimpleNamespace(model_type=model_type)
        cls, says = get_quantization_config("mxfp4_pack"), families.quantization_of(out)
        self.assertEqual(cls.override_quantization_method(says, None, hf_config=hf_config), "mxfp4_pack")
        packed = cls.from_config(says)
        packed.maybe_update_config(str(out), hf_config=hf_config)
        packed.packed_modules_mapping = {}
        return packed

    def show(self, form, case, folder):
        """The name of the model's class."""
        ckpt, out = folder / "ckpt", folder / case.backend
        with ExitStack() as self.stack:
            families.as_on_a_gpu(self.stack)
            self.as_on_a_gpu(case, form)
            cls, engines = self.block(form, ckpt, lambda: families.quant_config_of(families.quantization_of(ckpt)))
            _, ours = self.block(form, out, lambda: self.packed_config(out))
        self.compare(families.experts_of(ours), families.experts_of(engines), False)
        names = [name for name, _ in engines.named_parameters()]
        self.assertEqual(names, [name for name, _ in ours.named_parameters()])
        for name, got, want in zip(names, ours.parameters(), engines.parameters()):
            self.assertTrue(torch.equal(got.data.view(torch.uint8), want.data.view(torch.uint8)), name)
        return cls.__name__


def asked():
    """(form, its cases)"""
    for form in families.LOADERS:
        if re.search(os.environ.get("MXFP4_PACK_FORMS", ""), form):
            yield form, [c for c in CASES if cells.is_asked(c) and not (c.backend != "marlin" and form in WITHOUT_CUTLASS)]


def folder_of(work, form):
    return work / re.sub(r"\W", "_", form)


def run_rank(rank, tp, work):
    """In a process of its own. Writes a line for each form and backend: the class, or what is wrong."""
    torch.set_default_dtype(torch.bfloat16)
    with families.on_cpu():
        init_distributed_environment(tp, rank, f"file://{work}/rendezvous{tp}", rank, "gloo")
        initialize_model_parallel(tp)
    for form, cases in asked():
        for case in cases:
            vllm_classes.quantization.canaries_passed.clear()
            name = Blocks().show(form, case, folder_of(work, form))
            (folder_of(work, form) / f"{case.backend} {tp} {rank}").write_text(name)


def main():
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        for form, cases in asked():
            bench = families.bench_of(form, folder_of(work, form))
            for case in cases:
                for tp in TP_SIZES:
                    add = ("--add",) * (tp != TP_SIZES[0])
                    bench.must(0, "convert", "ckpt", case.backend, "--backend", case.backend, "--engine", "vllm", "--tp-size", tp,
                               *add, "-q")
        for tp in TP_SIZES:
            torch.multiprocessing.spawn(run_rank, (tp, work), nprocs=tp)
        for form, cases in asked():
            for case in cases:
                for tp in TP_SIZES:
                    row(form, case.backend, tp, "real classes", f"{(folder_of(work, form) / f'{case.backend} {tp} 0').read_text()}, {case.note}")
    for form, why in UNREAD.items():
        row(form, "", 0, "not", why)


def row(form, backend, tp, shown, how):
    cells.record({"engine": "vllm", "version": vllm_classes.VERSION, "form": form, "backend": backend, "tp": tp, "shown": shown,
                  "how": f"{how} (vllm_models.py)"})


if __name__ == "__main__":
    main()
