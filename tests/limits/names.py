#!/usr/bin/env python3
"""Memory for a checkpoint's names. usage: limits/names.py MXFP4-PACK [LAYERS]

Kimi-K3 with LAYERS (12) of its 93 layers and tensors of a few hundred bytes, so that names take most of the memory. A
command may use BASE and a share of LIMIT, the limit for the 497,000 names of all 93 layers.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from bounds import run

BASE, LIMIT, NAMES = 32, 512, 497_000  # MiB


def main():
    program, layers = str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2] if len(sys.argv) > 2 else "12"
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        source, out, other = (pathlib.Path(folder) / name for name in ("source", "out", "other"))
        sizes = ["--layers", layers, "--hidden", "64", "--intermediate", "32", "--vocab", "64"]
        subprocess.run([program, "synth", "kimi-k3", source, *sizes, "-q"], check=True)
        names = len(json.loads((source / "model.safetensors.index.json").read_text())["weight_map"])
        target = ["--engine", "vllm", "-q", "--backend"]
        cpu, hopper = [*target, "vllm-cpu"], [*target, "triton-hopper", "--add"]
        limit = BASE + (LIMIT - BASE) * names / NAMES
        for args in (["inspect", source],
                     ["convert", source, out, *cpu],
                     ["verify", out],
                     ["verify", out, "--source", source, "--level", "bytes"],
                     ["unpack", out, other, "-q"],
                     ["convert", source, out, *cpu, "--force"],
                     ["convert", source, out, *cpu, "--threads", "2"],
                     ["convert", source, out, *hopper],
                     ["verify", out, "--source", source, "--level", "bytes"]):
            code, _, memory, seconds = run(program, *args, MXFP4_PACK_THREADS="2")
            memory /= 1 << 20
            well = code == 0 and memory <= limit
            failed += not well
            options = " ".join(a for a in map(str, args) if a.startswith("--"))
            print(f"{'ok' if well else 'FAILED'}: {names} names: {args[0]} {options}: exit code {code}, "
                  f"{memory:.0f} MiB of {limit:.0f}, {seconds:.1f} s")
    return 1 if failed else 0


sys.exit(main())
