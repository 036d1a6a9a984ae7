#!/usr/bin/env bash
# Layout files with values for scales and with copies. usage: layout_values.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

# The message gives the place of the damage.
damage() { # TENSOR OFFSET BYTE: of a tensor's data, in a copy of the output
  rm -rf "$dir/bad"
  cp -r "$dir/out" "$dir/bad"
  python3 - "$dir"/bad/packed/packed-*.safetensors "$@" <<'PYTHON'
import json, sys
path, tensor, offset, byte = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with open(path, "r+b") as f:
    size = int.from_bytes(f.read(8), "little")
    f.seek(8 + size + json.loads(f.read(size))["layers.0.ffn.experts." + tensor]["data_offsets"][0] + offset)
    f.write(bytes([byte]))
PYTHON
}
ckpt=$root/testdata/tiny/deepseek-v4

# A plain form of hidden 128 and intermediate 64, or of 128 and 32. It stores w2's scales as F32 with a pad of 1.0 in
# each row, each row of w13's scales twice, and all of w2's codes twice. The arguments are Python that changes `d`.
cat >"$once/make.py" <<'PYTHON'
import json, sys
h, i = 128, int(sys.argv[1])
def tensor(role, part, rows, row):
    t = {"role": role, "part": part, "name": role + "_" + part, "dtype": "U8", "torch_dtype": "uint8", "shape": [rows, row],
         "row_bytes": row, "pad": {"row": 0, "column": 0, "storage": 0}, "add": 0, "storage": {"rows": rows, "bytes": row},
         "modes": [[row * 8, 0, 1], [rows, 1, 0]]}
    return t | ({"rows": {"block": 0, "first": "gate"}} if role == "w13" else {})
d = {"mxfp4_pack_layout": 1, "name": "mine", "engine": "none", "size": {"hidden": h, "intermediate": i},
     "padded": {"hidden": h, "intermediate": i},
     "tensors": [tensor("w13", "codes", 2 * i, h // 2), tensor("w13", "scales", 2 * i, h // 32),
                 tensor("w2", "codes", h, i // 2), tensor("w2", "scales", h, i // 32)]}
twice, codes, scales = d["tensors"][1:]
twice["modes"].insert(1, [2, 0, 0])
twice["shape"] = [4 * i, h // 32]
codes["modes"].append([2, 0, 0])
codes["shape"] = [2, h, i // 2]
width = (i // 32 + 1) * 4
scales |= {"dtype": "F32", "torch_dtype": "float32", "shape": [h, width // 4], "row_bytes": width,
           "pad": {"row": 0, "column": 0x3F800000, "storage": 0}, "storage": {"rows": h, "bytes": width},
           "modes": [[width * 8, 0, 1], [h, 1, 0]],
           "values": {"width": 4, "of_scales": [1 << 22] + [s << 23 for s in range(1, 255)] + [None]}}
for change in sys.argv[2:]:
    exec(change)
print(json.dumps(d))
PYTHON
layout() { # FILE [INTERMEDIATE] [CHANGE..]
  local file=$1
  shift
  python3 "$once/make.py" "$@" >"$dir/$file"
}
# The stored bytes of one expert, computed directly from the checkpoint by the rules of the file.
cat >"$once/stored.py" <<'PYTHON'
import glob, json, os, sys
def tensors(folder):
    found = {}
    for name in glob.glob(folder + "/*.safetensors"):
        with open(name, "rb") as f:
            size = int.from_bytes(f.read(8), "little")
            for key, t in json.loads(f.read(size)).items():
                if key != "__metadata__":
                    f.seek(8 + size + t["data_offsets"][0])
                    found[key] = t["shape"], f.read(t["data_offsets"][1] - t["data_offsets"][0])
    return found
source, out = tensors(sys.argv[1]), tensors(sys.argv[2] + "/packed")
name = "layers.0.ffn.experts."
def rows(key):
    (n, _), data = source[name + key]
    return [data[len(data) // n * r:len(data) // n * (r + 1)] for r in range(n)]
def expert(key, e):
    shape, data = out[name + key]
    return data[len(data) // shape[0] * e:len(data) // shape[0] * (e + 1)]
one = b"\0\0\x80\x3F"
for e in 0, 1:
    w1, w3 = rows(f"{e}.w1.scale"), rows(f"{e}.w3.scale")
    assert expert("w13_scales", e) == b"".join(r + r for r in w1 + w3), "rows twice"
    assert expert("w2_codes", e) == b"".join(rows(f"{e}.w2.weight")) * 2, "codes twice"
    floats = [b"".join((s << 23 or 1 << 22).to_bytes(4, "little") for s in row) + one for row in rows(f"{e}.w2.scale")]
    assert expert("w2_scales", e) == b"".join(floats), "floats"
PYTHON

test_bytes_of_the_file() {
  layout mine.json 64
  expect 'in words' 0 'w13 scales: w13_scales, no built-in layout: 3 modes, every bit stored 2 times, halves' '' \
    "$program" layout "$dir/mine.json"
  expect 'values, too' 0 'w2 scales: w2_scales, .*, values of 4 bytes for scales 0x00 to 0xfe$' '' "$program" layout "$dir/mine.json"
  expect 'as JSON' 0 '"copies":2.*"values":\{"width":4,"scales":"0x00 to 0xfe"\}' '' "$program" layout "$dir/mine.json" --json
  expect 'convert; its engine is none' 0 '' 'packed tensors for ' "$program" convert "$ckpt" "$dir/out" --layout "$dir/mine.json"
  expect 'the bytes that the file says' 0 '' '' python3 "$once/stored.py" "$ckpt" "$dir/out"
  expect 'verify' 0 'right at level bytes' '' "$program" verify "$dir/out" --source "$ckpt"
  expect 'verify without the source' 0 'right at level bytes' '' "$program" verify "$dir/out"
  expect 'unpack' 0 '' 'each with' "$program" unpack "$dir/out" "$dir/again"
  expect 'the checkpoint again' 0 '' '' diff -r "$ckpt" "$dir/again"
  expect 'diff' 0 'are equal' '' "$program" diff "$dir/out" "$dir/out"
  convert "$ckpt" "$dir/marlin" --backend marlin --engine vllm
  expect 'another packed form' 0 '' '' "$program" convert "$dir/out" "$dir/marlin-again" --backend marlin --engine vllm -q
  expect 'has its bytes' 0 'are equal' '' "$program" diff "$dir/marlin" "$dir/marlin-again"
}
test_two_ranks() {
  layout half.json 32
  expect 'two ranks' 0 '' '' "$program" convert "$ckpt" "$dir/ranks" --layout "$dir/half.json" --tp-size 2 -q
  expect 'verify of both' 0 'right at level bytes' '' "$program" verify "$dir/ranks" --source "$ckpt"
  expect 'unpack of both' 0 '' 'each with' "$program" unpack "$dir/ranks" "$dir/again2"
  expect 'the checkpoint from both' 0 '' '' diff -r "$ckpt" "$dir/again2"
}
# Scales that are F32 in the checkpoint: as wide as their values, and not the same bytes.
test_scales_that_are_f32() {
  cp -r "$ckpt" "$dir/f32"
  prepare python3 - "$dir"/f32/*.safetensors <<'PYTHON'
import json, sys
for path in sys.argv[1:]:
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data, out = f.read(), b""
    for name, t in header.items():
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        piece = data[begin:end]
        if ".experts." in name and name.endswith(".scale") and "shared" not in name:
            t["dtype"], piece = "F32", b"".join((s << 23 or 1 << 22).to_bytes(4, "little") for s in piece)
        t["data_offsets"] = [len(out), len(out) + len(piece)]
        out += piece
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + out)
PYTHON
  layout inverse.json 64 'scales["values"]["of_scales"] = [0x3F800000 - s for s in range(256)]'
  expect 'F32 to values' 0 '' '' "$program" convert "$dir/f32" "$dir/out32" --layout "$dir/inverse.json" -q
  expect 'verify of these' 0 'right at level bytes' '' "$program" verify "$dir/out32" --source "$dir/f32"
  expect 'unpack of these' 0 '' 'each with' "$program" unpack "$dir/out32" "$dir/again32"
  expect 'the checkpoint with F32 again' 0 '' '' diff -r "$dir/f32" "$dir/again32"
}
# Scales that the file has nothing for: one line, and nothing is written.
test_scales_outside() {
  layout few.json 64 'scales["values"]["of_scales"] = [s << 23 if s > 150 else None for s in range(256)]'
  expect 'a scale outside' 2 '' 'layers.[0-9]+.ffn.experts.[0-9]+.w2.scale: expert [0-9]+, row [0-9]+, group [01]: scale 0x[0-9a-f]+ has no value in the layout file, which has them for 0x97 to 0xff \([0-9]+ such scales here\)' \
    "$program" convert "$ckpt" "$dir/nothing" --layout "$dir/few.json"
  expect 'nothing is written' 0 '' '' [ ! -e "$dir/nothing" ]
}
test_place_of_damage() {
  layout mine.json 64
  convert "$ckpt" out --layout mine.json
  prepare damage w2_codes 8190 7
  expect 'verify finds a copy that differs' 1 'w2_codes: expert 0: 1 byte differs between copies, the first at byte 8190 of the expert' '' \
    "$program" verify "$dir/bad"
  expect 'unpack refuses it' 2 '' 'w2_codes: expert 0: 1 byte differs between copies, the first at byte 8190 of the expert; either copy may be the wrong one; damaged\?' \
    "$program" unpack "$dir/bad" "$dir/no"
  expect 'diff says it is a copy' 1 'first in expert 0, byte 8190, a copy; in B, 1 byte differs between copies' '' \
    "$program" diff "$dir/out" "$dir/bad"
  prepare damage w2_scales 0 1
  expect 'verify finds what is no value' 1 "w2_scales: expert 0: the value stored for element 0 of layers.0.ffn.experts.0.w2.scale represents no scale" '' \
    "$program" verify "$dir/bad"
  expect 'unpack, too' 2 '' "w2_scales: expert 0: the value stored for element 0 of .* represents no scale; damaged" \
    "$program" unpack "$dir/bad" "$dir/no"
  prepare damage w2_scales 8 1
  expect 'a pad' 1 'w2_scales: expert 0: 1 pad byte is wrong, the first in row 0, byte 8: 0x01, 0x00 expected' '' "$program" verify "$dir/bad"
}
run_cases
