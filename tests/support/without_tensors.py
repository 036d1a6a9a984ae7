#!/usr/bin/env python3
"""without_tensors.py DIR PATTERN..: rewrites a checkpoint without the tensors whose names contain one of the patterns.
The index is rewritten, too, so that only the config implies that the tensors are missing."""

import json
import struct
import sys
from pathlib import Path


def rewrite(path, patterns):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    kept, body = {}, b""
    for name, tensor in sorted(header.items(), key=lambda t: t[1].get("data_offsets", [0])[0]):
        if name == "__metadata__":
            kept[name] = tensor
        elif not any(p in name for p in patterns):
            begin, end = tensor["data_offsets"]
            kept[name] = {**tensor, "data_offsets": [len(body), len(body) + end - begin]}
            body += data[8 + size + begin : 8 + size + end]
    text = json.dumps(kept).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return {name: path.name for name in kept if name != "__metadata__"}, len(body)


def main():
    folder, patterns = Path(sys.argv[1]), sys.argv[2:]
    names, total = {}, 0
    for path in sorted(folder.glob("*.safetensors")):
        of_file, size = rewrite(path, patterns)
        names.update(of_file)
        total += size
    index = folder / "model.safetensors.index.json"
    if index.exists():
        index.write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": names}))


if __name__ == "__main__":
    main()
