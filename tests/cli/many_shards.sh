#!/usr/bin/env bash
# A checkpoint of more shards than files may be open. usage: many_shards.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

test_more_shards_than_open_files() {
  shards=1100
  cp -r "$tiny" "$dir/many"
  python3 - "$dir/many" $shards <<'PYTHON'
import json, struct, sys
folder, count = sys.argv[1], int(sys.argv[2])
index = json.load(open(f"{folder}/model.safetensors.index.json"))
for i in range(count):
    name, file = f"extra.{i}.weight", f"extra-{i:05}.safetensors"
    header = json.dumps({name: {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}).encode()
    with open(f"{folder}/{file}", "wb") as out:
        out.write(struct.pack("<Q", len(header)) + header + bytes((i + j) % 256 for j in range(64)))
    index["weight_map"][name] = file
index.pop("metadata", None)
json.dump(index, open(f"{folder}/model.safetensors.index.json", "w"))
PYTHON
  ulimit -Sn 256
  ulimit -Hn 1024
  whole=(--backend marlin --engine vllm)
  expect 'convert' 0 '' 'check it with' "$program" convert "$dir/many" "$dir/out" "${whole[@]}"
  expect 'verify' 0 'right' '' "$program" verify "$dir/out" --source "$dir/many"
  expect 'unpack' 0 '' 'each with its source' "$program" unpack "$dir/out" "$dir/again"
  expect 'every file' 0 '' '' diff -r "$dir/many" "$dir/again"
  expect 'convert with each shard kept' 0 '' 'check it with' "$program" convert "$dir/many" "$dir/linked" "${whole[@]}" --link
  expect 'it is right' 0 'right' '' "$program" verify "$dir/linked" --source "$dir/many"
  expect 'a soft limit is raised' 0 '' 'check it with' \
    bash -c 'ulimit -Sn 8 && exec "$@"' - "$program" convert "$dir/many" "$dir/soft" "${whole[@]}"
}
run_cases
