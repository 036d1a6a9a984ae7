#!/usr/bin/env bash
# Files beside the weights, and links; tests/cases/files.py has the messages. usage: companions.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

on() { "$program" convert "$1" "$2" --backend marlin --engine vllm "${@:3}"; }
fresh() { prepare cp -r "$tiny" ckpt; }
shard=model-00000-of-00001.safetensors

test_text_that_begins_like_a_pointer() {
  fresh
  for _ in $(seq 20); do echo 'version https://git-lfs.github.com/spec/v1 is how a pointer begins'; done >ckpt/NOTES.md
  expect 'is a companion' 0 '' '' on ckpt out -q
}
test_folder_of_shards() {
  fresh
  mkdir ckpt/parts
  prepare cp ckpt/config.json ckpt/parts/
  prepare mv ckpt/$shard ckpt/parts/
  prepare sed -i 's,"model-00000,"parts/model-00000,' ckpt/model.safetensors.index.json
  expect "with the checkpoint's own shards" 0 '' '' on ckpt out -q
  expect 'comes along' 0 '' '' test -e out/parts/config.json
}
test_shards_that_no_index_names() {
  fresh
  for name in mtp consolidated extra; do prepare cp ckpt/$shard ckpt/$name.safetensors; done
  expect 'the first and the last are named' 0 . \
    'index.json: does not name 3 shards, which are skipped: consolidated.safetensors to mtp.safetensors$' "$program" inspect ckpt
}
test_infinity_in_config_json() {
  fresh
  prepare python3 - <<'EOF'
import json
config = json.load(open("ckpt/config.json"))
config.update(initializer_range=float("inf"), dropout=[float("nan"), float("-inf")], note="NaN, Infinity")
json.dump(config, open("ckpt/config.json", "w"), indent=2)
EOF
  expect 'convert' 0 '' '' on ckpt out -q
  expect 'a set beside it' 0 '' '' "$program" convert ckpt out --backend triton-hopper --engine vllm --add -q
  kept() { python3 -c '
import json, math
config = json.load(open("out/config.json"))
assert config["initializer_range"] == math.inf and config["dropout"][1] == -math.inf and math.isnan(config["dropout"][0])
assert config["note"] == "NaN, Infinity", config'; }
  expect 'is kept' 0 '' '' kept
}

test_links_that_leave_the_folder() {
  fresh
  mkdir elsewhere
  prepare mv ckpt/$shard ckpt/LICENSE elsewhere/
  ln -s ../elsewhere/$shard ../elsewhere/LICENSE ckpt/
  outside="$shard: links outside the directory, to .*elsewhere/model-.*; give --follow-links to read it$"
  expect 'convert follows' 0 '' 'check it with: mxfp4-pack verify out --source ckpt --follow-links$' on ckpt out --follow-links
  expect 'a companion comes along' 0 '' '' cmp elsewhere/LICENSE out/LICENSE
  expect 'verify does not' 2 '' "$outside" "$program" verify out --source ckpt -q
  expect 'verify follows' 0 '' '' "$program" verify out --source ckpt --follow-links -q
  for part in 0 1; do expect "part $part follows" 0 '' '' on ckpt parts --follow-links --part $part/2 -q; done
  expect 'their merge, too' 0 '' '' "$program" merge parts -q
}
run_cases
