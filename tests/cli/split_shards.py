"""Copies a checkpoint with its experts in one shard, and all other tensors in another, which convert can link.

usage: split_shards.py FROM TO
"""
import json
import pathlib
import shutil
import struct
import sys

source, target = map(pathlib.Path, sys.argv[1:])
shutil.copytree(source, target)
bodies, headers, weight_map = [b"", b""], [{}, {}], {}
names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
for shard in sorted(target.glob("*.safetensors")):
    data = shard.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    for tensor, entry in json.loads(data[8:begin]).items():
        if tensor == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        to = 0 if "experts" in tensor else 1
        at = len(bodies[to])
        headers[to][tensor] = entry | {"data_offsets": [at, at + last - first]}
        bodies[to] += data[begin + first:begin + last]
        weight_map[tensor] = names[to]
    shard.unlink()
for name, header, body in zip(names, headers, bodies):
    text = json.dumps(header).encode()
    (target / name).write_bytes(struct.pack("<Q", len(text)) + text + body)
(target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
