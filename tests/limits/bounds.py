#!/usr/bin/env python3
"""Memory and time of small inputs that claim to be large. usage: limits/bounds.py MXFP4-PACK

Each input is a few kilobytes on disk. inspect, convert --dry-run and verify must refuse a wrong input with exit code 2
and a line that names the fault, and accept a correct one. They must stay within the memory and the processor time
below.
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

MEMORY, SECONDS = 128 << 20, 10
TARGET = ["--backend", "marlin", "--engine", "vllm", "--allow-incomplete"]  # its files are holes
WIDTH = {"U8": 1, "BF16": 2}
CONFIG = {"model_type": "gpt_oss", "hidden_act": "silu", "swiglu_limit": 7.0, "num_experts_per_tok": 2,
          "quantization_config": {"quant_method": "mxfp4"}}


def layer(number, experts, hidden, intermediate):
    """Name to dtype and shape, as GPT-OSS has them."""
    name = f"model.layers.{number}.mlp."
    return {
        name + "router.weight": ("BF16", [experts, hidden]),
        name + "router.bias": ("BF16", [experts]),
        name + "experts.gate_up_proj_blocks": ("U8", [experts, 2 * intermediate, hidden // 32, 16]),
        name + "experts.gate_up_proj_scales": ("U8", [experts, 2 * intermediate, hidden // 32]),
        name + "experts.gate_up_proj_bias": ("BF16", [experts, 2 * intermediate]),
        name + "experts.down_proj_blocks": ("U8", [experts, hidden, intermediate // 32, 16]),
        name + "experts.down_proj_scales": ("U8", [experts, hidden, intermediate // 32]),
        name + "experts.down_proj_bias": ("BF16", [experts, hidden]),
    }


def checkpoint(folder, tensors, experts, hidden, intermediate, length=None):
    """One shard with only a hole after its header. length: the file's length, if it differs from the header's."""
    header, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = WIDTH[dtype]
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    folder.mkdir()
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(length or 8 + len(text) + end)
    config = CONFIG | {"num_local_experts": experts, "hidden_size": hidden, "intermediate_size": intermediate}
    (folder / "config.json").write_text(json.dumps(config))


def many_experts_in_config(folder):
    checkpoint(folder, layer(0, 4, 128, 128), 65536, 128, 128)


def huge_sizes_in_config(folder):
    checkpoint(folder, layer(0, 4, 128, 128), 1 << 40, 1 << 62, 1 << 62)


def tensors_beyond_the_file(folder):
    checkpoint(folder, layer(0, 65536, 1 << 14, 1 << 14), 65536, 1 << 14, 1 << 14, 1 << 16)


def more_bytes_than_any_checkpoint(folder):
    checkpoint(folder, layer(0, 65536, 1 << 16, 1 << 16), 65536, 1 << 16, 1 << 16, 1 << 16)


def header_beyond_the_file(folder):
    checkpoint(folder, layer(0, 4, 128, 128), 4, 128, 128)
    with open(folder / "model.safetensors", "r+b") as f:
        f.write(struct.pack("<Q", 99_999_999))
        f.truncate(1 << 16)


def holes_of_a_terabyte(folder):
    checkpoint(folder, layer(0, 64, 1 << 17, 1 << 16), 64, 1 << 17, 1 << 16)


def holes_of_many_experts(folder):
    tensors = {}
    for number in range(64):
        tensors |= layer(number, 65536, 32, 32)
    checkpoint(folder, tensors, 65536, 32, 32)


# the input, and the text of the refusal; None: the input is accepted
INPUTS = [
    (many_experts_in_config, "num_local_experts"),
    (huge_sizes_in_config, "num_local_experts"),
    (tensors_beyond_the_file, "bytes expected, 65536 present"),
    (more_bytes_than_any_checkpoint, "bytes expected, 65536 present"),
    (header_beyond_the_file, "header of 99999999 bytes expected"),
    (holes_of_a_terabyte, ""),
    (holes_of_many_experts, "stacked experts in all"),
]


def run(program, *args, **variables):
    """Exit code, what it printed, its peak of memory and its seconds of the processor."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("MXFP4_PACK_")}
    env |= {"MXFP4_PACK_DEVICE": "cpu", "XDG_CACHE_HOME": "", "HOME": "", **variables}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen([program, *map(str, args)], env=env, stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return process.returncode, said.read().decode(), used.ru_maxrss << 10, used.ru_utime + used.ru_stime


def main():
    program, failed = str(pathlib.Path(sys.argv[1]).resolve()), 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        out = folder / "out"
        small = folder / "small"
        checkpoint(small, layer(0, 4, 128, 128), 4, 128, 128)
        subprocess.run([program, "convert", small, out, *TARGET, "-q"], check=True)
        for make, refusal in INPUTS:
            source = folder / make.__name__
            try:
                make(source)
            except OSError as error:
                print(f"skipped: {make.__name__}: this file system has no such file: {error}")
                continue
            for args, right in ((["inspect", source], 2 if refusal else 0),
                                (["convert", source, folder / "new", *TARGET, "--dry-run"], 2 if refusal else 0),
                                (["verify", out, "--source", source, "--tokens", "1"], 2)):
                code, said, memory, seconds = run(program, *args)
                named = args[0] == "verify" or not refusal or refusal in said
                if args[0] == "convert" and not refusal and "needed" in said:
                    right = 2  # planned, and then found too large for this disk
                well = code == right and named and memory <= MEMORY and seconds <= SECONDS
                failed += not well
                print(f"{'ok' if well else 'FAILED'}: {make.__name__}: {args[0]}: exit code {code}, "
                      f"{memory / 1e6:.0f} MB, {seconds:.2f} s")
                if not well:
                    print("".join(f"  {line[:200]}\n" for line in said.splitlines()[:4]), end="")
            shutil.rmtree(source)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
