#!/usr/bin/env bash
# Files beside the weights: pointers, hidden names, nested checkpoints, links. usage: companions.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

on() { "$program" convert "$1" "$2" --backend marlin --engine vllm "${@:3}"; }
fresh() { rm -rf ckpt out && prepare cp -r "$tiny" ckpt; }
lists() { (cd "$1" && find . -type f -o -type l | sort | grep -E "$2"); }

# Git LFS pointers
test_git_lfs_pointers() {
  for name in tokenizer.json templates/chat.jinja; do
    fresh
    mkdir -p ckpt/templates
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 27868174\n' 0 >"ckpt/$name"
    pointer="^mxfp4-pack: error: $name: this is a Git LFS pointer, not the file itself; run 'git lfs pull'$"
    expect "inspect: $name is a pointer" 2 '' "$pointer" "$program" inspect ckpt -q
    expect "convert: $name is a pointer" 2 '' "$pointer" on ckpt out -q
    expect "nothing is written: $name" 1 '' '' test -e out
  done
    fresh
  echo 'version https://git-lfs.github.com/spec/v1 is how a pointer begins' | prepare tee ckpt/NOTES.md >long.txt
  for _ in $(seq 20); do cat long.txt; done >>ckpt/NOTES.md
  expect 'a longer file is none' 0 '' '' on ckpt out -q
}
# hidden names, as archives of a Mac and mounts of Kubernetes have them
test_hidden_names() {
  fresh
  printf '\0\5\26\7\0\2\0\0Mac OS X        ' >ckpt/._model-00000-of-00001.safetensors
  prepare cp ckpt/._model-00000-of-00001.safetensors ckpt/._config.json
  prepare cp ckpt/._config.json ckpt/.DS_Store
  mkdir ckpt/templates ckpt/.idea
  echo 1 >ckpt/templates/._chat.jinja
  echo 1 >ckpt/templates/chat.jinja
  echo 1 >ckpt/.idea/workspace.xml
  prepare rm ckpt/model.safetensors.index.json
  expect 'a hidden shard beside one without an index' 0 'in 2 shards$' 'all 2 shards are read$' "$program" inspect ckpt
  expect 'hidden names are skipped, and named' 0 '' 'skipped: .DS_Store, ._config.json, ._model-.*safetensors, .idea/, templates/._chat.jinja$' \
    on ckpt out
  expect 'none is in OUT' 1 '' '' lists out '/\.[^/]*$'
  expect 'others of that folder are' 0 '^./templates/chat.jinja$' '' lists out chat
  expect 'OUT is right' 0 '' '' "$program" verify out --source ckpt -q
}
test_kubernetes_volume() {
  mkdir -p volume/..2026_05_04
  prepare cp -r "$tiny"/. volume/..2026_05_04
  ln -s ..2026_05_04 volume/..data
  for file in volume/..data/*; do ln -s "..data/${file##*/}" volume/; done
  expect 'a volume of Kubernetes' 0 'in 2 shards$' '' "$program" inspect volume
  expect 'is converted' 0 '' 'skipped: ..2026_05_04/, ..data/$' on volume of-volume
  expect 'without a second copy' 1 '' '' lists of-volume '/\.\.'
  expect 'as from a folder' 0 '' '' "$program" verify of-volume --source "$tiny" -q
}
# checkpoints in folders
nested_is() { printf '%s' "^mxfp4-pack: warning: $1/: a checkpoint in a folder, skipped as a whole; convert or copy it separately$"; }

nested() {  # FOLDER: a draft model, with weights in it or in a folder of it
  fresh
  mkdir -p "ckpt/$1/weights"
  cp ckpt/config.json "ckpt/$1/config.json"
  cp ckpt/tokenizer_config.json "ckpt/$1/" 2>/dev/null || echo '{}' >"ckpt/$1/tokenizer_config.json"
}
test_checkpoint_in_a_folder() {
  nested eagle
  prepare cp ckpt/model-00000-of-00001.safetensors ckpt/eagle/model.safetensors
  expect 'inspect names a checkpoint in a folder' 0 . "$(nested_is eagle)" "$program" inspect ckpt
  expect 'convert names it' 0 '' "$(nested_is eagle)" on ckpt out
  expect 'nothing of it is in OUT' 1 '' '' lists out eagle
  expect 'OUT is right without it' 0 '' '' "$program" verify out --source ckpt -q
}
test_checkpoint_two_folders_deep() {
  nested a/dspark
  echo 1 >ckpt/a/notes.txt
  prepare cp ckpt/model-00000-of-00001.safetensors ckpt/a/dspark/weights/x.bin
  expect 'one a folder deeper, with weights in a folder of it' 0 '' "$(nested_is a/dspark)" on ckpt out
  expect 'what is beside it comes along' 0 '^./a/notes.txt$' '' lists out '/a/'
}
test_config_without_weights() {
  nested vision
  expect 'a config without weights' 0 '' '' on ckpt out -q
  expect 'comes along' 0 '^./vision/config.json$' '' lists out vision
}
test_folder_of_shards() {
  nested parts
  prepare mv ckpt/model-00000-of-00001.safetensors ckpt/parts/
  prepare sed -i 's,"model-00000,"parts/model-00000,' ckpt/model.safetensors.index.json
  expect "a folder with the checkpoint's own shards" 0 '' '' on ckpt out -q
  expect 'comes along, too' 0 '^./parts/config.json$' '' lists out parts
}
# shards that no index names
test_shards_that_no_index_names() {
  fresh
  prepare cp ckpt/model-00000-of-00001.safetensors ckpt/mtp.safetensors
  other='^mxfp4-pack: warning: model.safetensors.index.json: does not name'
  expect 'inspect names another shard' 0 . "$other 1 shard, which is skipped: mtp.safetensors$" "$program" inspect ckpt
  expect 'convert, too' 0 '' "$other 1 shard, which is skipped: mtp.safetensors$" on ckpt out
  prepare cp ckpt/mtp.safetensors ckpt/consolidated.safetensors
  prepare cp ckpt/mtp.safetensors ckpt/extra.safetensors
  expect 'of several the first and the last' 0 . "$other 3 shards, which are skipped: consolidated.safetensors to mtp.safetensors$" \
    "$program" inspect ckpt
}
# JSON as Python writes and reads it
test_json_as_python_writes_it() {
  fresh
  prepare python3 - <<'EOF'
import json
config = json.load(open("ckpt/config.json"))
config.update(initializer_range=float("inf"), dropout=[float("nan"), float("-inf")], note="NaN, Infinity")
json.dump(config, open("ckpt/config.json", "w"), indent=2)
json.dump({"temperature": float("inf")}, open("ckpt/generation_config.json", "w"))
EOF
  expect 'inspect of Infinity' 0 '' '' "$program" inspect ckpt -q
  expect 'convert of Infinity' 0 '' '' on ckpt out -q
  kept() { python3 -c '
import json, math
config = json.load(open("out/config.json"))
assert config["initializer_range"] == math.inf and config["dropout"][1] == -math.inf and math.isnan(config["dropout"][0])
assert config["note"] == "NaN, Infinity", config'; }
  expect 'is kept' 0 '' '' kept
  expect 'verify of Infinity' 0 '' '' "$program" verify out --source ckpt -q
  expect 'a set beside it' 0 '' '' "$program" convert ckpt out --backend triton-hopper --engine vllm --add -q
  expect 'unpack of Infinity' 0 '' '' "$program" unpack out unpacked -q
  expect 'gives the config again' 0 '' '' cmp unpacked/config.json ckpt/config.json
  prepare sed -i 's/"num_local_experts": [0-9]*/"num_local_experts": Infinity/' ckpt/config.json
  expect 'where a number is needed it is named' 2 '' 'num_local_experts is Infinity, a whole number of at least 1 expected$' "$program" inspect ckpt -q
}
test_place_of_invalid_json() {
  fresh
  prepare sed -i 's/"num_local_experts": /"num_local_experts": x/' ckpt/config.json
  line=$(grep -n num_local_experts ckpt/config.json | cut -d: -f1)
  expect 'line, column and key' 2 '' "^mxfp4-pack: error: config.json: invalid JSON: .* \(line $line, column [0-9]+, key 'num_local_experts'\)$" \
    "$program" inspect ckpt -q
}
test_links_that_leave_the_folder() {
  fresh
  prepare sed -i '0,/"lm_head.weight"/s//lm_head.weight/' ckpt/model.safetensors.index.json
  expect 'of the index, too' 2 '' "index.json: invalid JSON: .* \(line 6, column 5, key 'weight_map'\)$" "$program" inspect ckpt -q

  # links that leave the folder
  fresh
  mkdir elsewhere
  prepare mv ckpt/model-00000-of-00001.safetensors ckpt/LICENSE elsewhere/
  ln -s ../elsewhere/model-00000-of-00001.safetensors ../elsewhere/LICENSE ckpt/
  outside='model-00000-of-00001.safetensors: links outside the directory, to .*elsewhere/model-.*; give --follow-links to read it$'
  expect 'inspect: a shard elsewhere' 2 '' "$outside" "$program" inspect ckpt -q
  expect 'convert: a shard elsewhere' 2 '' "$outside" on ckpt out -q
  expect 'inspect follows' 0 'in 2 shards$' '' "$program" inspect ckpt --follow-links
  expect 'convert follows' 0 '' 'check it with' on ckpt out --follow-links
  expect 'a companion comes along' 0 '' '' cmp elsewhere/LICENSE out/LICENSE
  expect 'verify does not' 2 '' "$outside" "$program" verify out --source ckpt -q
  expect 'verify follows' 0 '' '' "$program" verify out --source ckpt --follow-links -q
  expect 'parts follow' 0 '' '' on ckpt parts --follow-links --part 0/2 -q
  expect 'the second, too' 0 '' '' on ckpt parts --follow-links --part 1/2 -q
  expect 'and their merge' 0 '' '' "$program" merge parts -q
  prepare mv ckpt/config.json elsewhere/
  ln -s ../elsewhere/config.json ckpt/
  expect 'a config elsewhere' 2 '' 'config.json: links outside the directory, to .*; give --follow-links to read it$' "$program" inspect ckpt -q
  expect 'is followed' 0 '' '' "$program" inspect ckpt -q --follow-links
}
# a hub cache whose blobs are on another disk
test_hub_cache_with_blobs_on_another_disk() {
  mkdir elsewhere && cp "$tiny/LICENSE" elsewhere/
  export HF_HUB_CACHE=$dir/hub
  repository=$HF_HUB_CACHE/models--openai--gpt-oss-20b
  mkdir -p "$repository/refs" "$repository/snapshots/abc" disk
  ln -s "$dir/disk" "$repository/blobs"
  printf abc >"$repository/refs/main"
  for file in "$tiny"/*; do
    blob=$(sha256sum <"$file" | cut -c1-64)
    prepare cp "$file" "disk/$blob"
    ln -s "../../blobs/$blob" "$repository/snapshots/abc/${file##*/}"
  done
  expect 'inspect of it' 0 'gpt-oss' 'its snapshot' "$program" inspect openai/gpt-oss-20b
  expect 'convert of it' 0 '' '' on openai/gpt-oss-20b of-hub -q
  expect 'with companions' 0 '' '' cmp "$tiny/LICENSE" of-hub/LICENSE
  echo private >disk/id_rsa
  ln -s ../../blobs/id_rsa "$repository/snapshots/abc/notes.txt"
  expect 'nothing there that is no blob' 0 '' 'skipped: notes.txt$' on openai/gpt-oss-20b of-hub --force
  prepare rm "$repository/snapshots/abc/LICENSE" "$repository/snapshots/abc/notes.txt"
  ln -s "$dir/elsewhere/LICENSE" "$repository/snapshots/abc/LICENSE"
  expect 'no other links' 0 '' 'skipped: LICENSE$' on openai/gpt-oss-20b of-hub --force
}
run_cases
