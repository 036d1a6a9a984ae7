#!/usr/bin/env python3
"""Changes numbers of a checkpoint in place. usage: change_tensors.py CKPT WHAT NAME..

WHAT is zeros (all bytes), or nan, inf or -inf (the last number of a BF16, F16 or F32 tensor; of U8,
which are scales, nan only).
NAME is a part of the names of tensors; NAME@E is expert E of tensors that hold several, NAME@A-B are experts A to B.
NAME:A-B are bytes A to B of a tensor, without the last.
"""
import json
import pathlib
import struct
import sys

NUMBERS = {"U8": {"nan": 0xFF},
           "BF16": {"nan": 0x7FC1, "inf": 0x7F80, "-inf": 0xFF80},
           "F16": {"nan": 0x7E01, "inf": 0x7C00, "-inf": 0xFC00},
           "F32": {"nan": 0x7FC00001, "inf": 0x7F800000, "-inf": 0xFF800000}}


def changed_ranges(name, tensor, patterns):
    begin, end = tensor["data_offsets"]
    for pattern in patterns:
        part, _, in_tensor = pattern.partition(":")
        if in_tensor and part in name:
            first, _, last = in_tensor.partition("-")
            yield begin + int(first), begin + int(last)
        if in_tensor:
            continue
        part, _, experts = pattern.partition("@")
        if part not in name:
            continue
        if not experts:
            yield begin, end
            continue
        first, _, last = experts.partition("-")
        share = (end - begin) // tensor["shape"][0]
        yield begin + int(first) * share, begin + (int(last or first) + 1) * share


def main():
    folder, what, *patterns = sys.argv[1:]
    count = 0
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with open(path, "r+b") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
            for name, tensor in header.items():
                if name == "__metadata__":
                    continue
                for begin, end in changed_ranges(name, tensor, patterns):
                    count += 1
                    if what == "zeros":
                        file.seek(8 + length + begin)
                        file.write(bytes(end - begin))
                        continue
                    number = NUMBERS[tensor["dtype"]][what]
                    bytes_ = struct.pack({"U8": "<B", "F32": "<I"}.get(tensor["dtype"], "<H"), number)
                    file.seek(8 + length + end - len(bytes_))
                    file.write(bytes_)
    if count == 0:
        sys.exit(f"no tensor is called as {patterns}")


main()
