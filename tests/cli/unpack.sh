#!/usr/bin/env bash
# unpack: the source again, or a refusal that leaves nothing. usage: unpack.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

convert "$tiny" "$once/o" --backend marlin --engine vllm
companion=generation_config.json

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
}
run_cases
