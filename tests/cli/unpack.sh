#!/usr/bin/env bash
# unpack: the source again, or a refusal that leaves nothing. usage: unpack.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

# the memory file to which the loaders redirect the output
in_memory() {
  python3 -c '
import os, subprocess, sys
memory = os.memfd_create("memory")
os.write(memory, b"!" * int(sys.argv[1]))
code = subprocess.run(sys.argv[2:], stdout=memory).returncode
os.lseek(memory, int(sys.argv[1]), os.SEEK_SET)
sys.stdout.buffer.write(open(memory, "rb").read())
sys.exit(code)' "$1" "$program" unpack "$2" --layer model.layers.0.mlp.experts
}
raw() { "$program" unpack "$1" --layer "${3:-model.layers.1.mlp.experts}" --rank "$2"; }
convert "$tiny" "$once/o" --backend marlin --engine vllm
companion=generation_config.json
marlin=(--backend marlin --engine vllm)

test_source_again() {
  cp -r "$once/o" o
  expect 'unpack' 0 '' 'tensors, [0-9.]+ kB, each with its source' "$program" unpack "$dir/o" "$dir/u"
  expect 'what was unpacked is the source, every file of it' 0 '' '' diff -r "$dir/u" "$tiny"
  expect 'again to the same place' 2 '' 'u: exists; choose another place$' "$program" unpack "$dir/o" "$dir/u"
  expect 'and verify takes it as that' 0 'right' '' "$program" verify "$dir/o" --source "$dir/u"
}
test_damaged_headers() {
  cp -r "$once/o" o
  put "$dir/o/packed/source-headers" 20 'x'
  expect 'unpack notices a wrong header' 2 '' 'source-headers: it does not have the checksum' "$program" unpack "$dir/o" "$dir/u1"
  rm "$dir/o/packed/source-headers"
  expect 'and a missing one' 2 '' 'source-headers: missing' "$program" unpack "$dir/o" "$dir/u1"
}
test_damaged_companion() {
  cp -r "$once/o" o
  mkdir "$dir/place"
  cp -r "$dir/o" "$dir/unlike"
  echo edited >>"$dir/unlike/$companion"
  rm "$dir/unlike/LICENSE"
  expect 'a damaged companion' 2 '' "$companion: does not have the checksum" "$program" unpack "$dir/unlike" "$dir/place/u"
  expect 'and a missing one is said too' 2 '' 'LICENSE: missing' \
    "$program" convert "$dir/unlike" "$dir/place/p" --backend triton-hopper --engine vllm
  expect 'before anything is written' 0 '' '' ls -A "$dir/place"
}
# --layer: the same raw layer out of every set, in every rank
test_layer_of_every_backend() {
  cp -r "$once/o" o
  convert "$tiny" "$dir/ranks" "${marlin[@]}" --tp-size 2
  raw "$dir/o" 0 >"$dir/raw-1-0"
  raw "$dir/ranks" 0 >"$dir/raw-2-0"
  raw "$dir/ranks" 1 >"$dir/raw-2-1"
  expect 'ranks have different rows' 1 'differ' '' cmp "$dir/raw-2-0" "$dir/raw-2-1"
  while read -r engine backend version; do
    for size in 1 2; do
      convert "$tiny" "$dir/s" --backend "$backend" --engine "$engine" --layout-version "$version" --tp-size $size --force
      for ((rank = 0; rank < size; ++rank)); do
        raw "$dir/s" $rank >"$dir/raw"
        expect "rank $rank of $size of $backend $version of $engine" 0 '' '' cmp "$dir/raw-$size-$rank" "$dir/raw"
      done
    done
  done <<'SETS'
sglang marlin 1
vllm marlin-fp8 1
vllm triton-hopper a
sglang triton-hopper c64
vllm triton-blackwell 1
vllm flashinfer-cutlass v2
sglang flashinfer-cutlass v1
vllm flashinfer-trtllm i128
vllm deepgemm 1
SETS
}
test_layer_of_an_added_set() {
  cp -r "$once/o" o
  raw "$dir/o" 0 >raw-1-0
  prepare "$program" convert "$tiny" "$dir/o" --add --backend triton-hopper --engine vllm -q
  "$program" unpack "$dir/o" --layer model.layers.1.mlp.experts --set 1 >"$dir/raw"
  expect 'a set that was added' 0 '' '' cmp "$dir/raw-1-0" "$dir/raw"
  expect 'a layer that is not there' 2 '' 'set 0 has no layer model.layers.9.mlp.experts of rank 0' raw "$dir/o" 0 model.layers.9.mlp.experts
  expect 'a rank that is not there' 2 '' 'has no layer .* of rank 3' raw "$dir/o" 3
  expect 'a set that is not there' 2 '' 'it has no set 7' "$program" unpack "$dir/o" --layer x --set 7
  expect 'a layer and DEST' 2 '' 'excludes' "$program" unpack "$dir/o" "$dir/u" --layer x
  expect 'neither' 2 '' 'DEST is required' "$program" unpack "$dir/o"
  expect 'a layer and --json' 2 'without --json' '' "$program" unpack "$dir/o" --layer x --json
}
test_damaged_layer() {
  convert "$tiny" "$dir/damaged" "${marlin[@]}"
  put "$dir/damaged/packed/packed-00001.safetensors" 4096 '\377'
  expect 'a damaged layer is not printed' 2 '' 'w13_weight: does not have the checksum in' raw "$dir/damaged" 0 model.layers.0.mlp.experts
}
test_layer_in_memory() {
  convert "$tiny" ranks "${marlin[@]}" --tp-size 2
  convert "$tiny" damaged "${marlin[@]}"
  put damaged/packed/packed-00001.safetensors 4096 '\377'
  raw ranks 0 model.layers.0.mlp.experts >raw
  for begin in 0 3; do
    in_memory $begin "$dir/ranks" >"$dir/memory"
    expect "a layer in memory, from $begin" 0 '' '' cmp "$dir/raw" "$dir/memory"
  done
  expect 'a damaged layer in memory' 2 '' 'w13_weight: does not have the checksum in' in_memory 0 "$dir/damaged"
}
# the last word of layer 0's w13 codes of expert 0 holds columns beyond hidden: a pad
test_damaged_tensors() {
  cp -r "$once/o" o
  put "$dir/o/packed/packed-00001.safetensors" $((4096 + 65536 - 1)) '\001'
  expect 'unpack notices a wrong pad byte' 2 '' 'w13_weight: does not have the checksum in' "$program" unpack "$dir/o" "$dir/u2"
  put "$dir/o/packed/packed-00001.safetensors" 4096 '\377'
  expect 'unpack notices a wrong code' 2 '' 'w13_weight: does not have the checksum in' "$program" unpack "$dir/o" "$dir/u3"
  expect 'and leaves nothing' 2 '' 'u3: no such directory' "$program" inspect "$dir/u3"
}
test_every_model() {
  for model in $("$program" synth --help | sed -n '/^Models: /,/^$/{s/^Models: //;p}' | tr -d ','); do
    synth "$model" "$dir/$model" --tiny
    convert "$dir/$model" "$dir/$model-o" --backend marlin --engine vllm --layout-version 1
    "$program" unpack "$dir/$model-o" "$dir/$model-u" -q
    expect "unpack gives every file of $model" 0 '' '' diff -r "$dir/$model-u" "$dir/$model"
  done
}
test_lossy_sets() {
  synth deepseek-v4-flash "$dir/square" --tiny --hidden 256 --intermediate 256
  convert "$dir/square" "$dir/lossy" --backend flashinfer-humming --engine vllm
  expect 'unpack of a lossy set' 2 '' "flashinfer-humming is lossy: the source's codes and scales are not in it" \
    "$program" unpack "$dir/lossy" "$dir/lossy-again"
  expect 'a raw layer of a lossy set' 2 '' 'flashinfer-humming is lossy' raw "$dir/lossy" 0
}
run_cases
