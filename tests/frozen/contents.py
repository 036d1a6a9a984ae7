#!/usr/bin/env python3
"""What a checkpoint holds, whatever files its tensors lie in. usage: contents.py CKPT

One line for each tensor: SHA-256, dtype, shape, name; and for each other file: SHA-256, file, name. Sorted by name.
"""
import hashlib
import json
import pathlib
import sys


def tensors(path):
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    for name, t in json.loads(data[8:begin]).items():
        if name == "__metadata__":
            continue
        first, last = t["data_offsets"]
        sha256 = hashlib.sha256(data[begin + first : begin + last]).hexdigest()
        shape = "x".join(map(str, t["shape"]))
        yield name, f"{sha256} {t['dtype']} {shape} {name}"


def main():
    lines = []
    for path in pathlib.Path(sys.argv[1]).iterdir():
        if path.suffix == ".safetensors":
            lines += tensors(path)
        elif path.name != "model.safetensors.index.json":
            lines.append((path.name, f"{hashlib.sha256(path.read_bytes()).hexdigest()} file {path.name}"))
    print("\n".join(line for _, line in sorted(lines)))


main()
