#!/usr/bin/env python3
"""Adds to a checkpoint a shard without experts and a companion. usage: add_shard.py CKPT [BYTES]"""
import json
import pathlib
import struct
import sys

folder = pathlib.Path(sys.argv[1])
index = folder / "model.safetensors.index.json"
size = int(sys.argv[2]) if len(sys.argv) > 2 else 2 << 20
header = json.dumps({"extra.weight": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
shard = folder / "extra.safetensors"
with shard.open("wb") as file:
    file.write(struct.pack("<Q", len(header)) + header + bytes(i % 251 for i in range(min(size, 2 << 20))))
    file.truncate(8 + len(header) + size)  # holes
content = json.loads(index.read_text())
content["weight_map"]["extra.weight"] = shard.name
content.pop("metadata", None)
index.write_text(json.dumps(content))
(folder / "NOTES.md").write_text("A companion.\n")
