#!/usr/bin/env bash
# diff of two outputs. usage: diff.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

prepare "$program" synth gpt-oss-20b "$once/less" --tiny --layers 2 -q
prepare "$program" synth gpt-oss-20b "$once/more" --tiny --layers 3 -q
for source in less more; do convert "$once/$source" "$once/o-$source" --backend marlin --engine vllm; done
deepseek=$root/testdata/tiny/deepseek-v4
convert "$deepseek" "$once/deepgemm" --backend deepgemm --engine vllm
convert "$deepseek" "$once/mega" --backend deepgemm-mega --engine sglang
prepare "$program" layout "$once/layout.json" --backend deepgemm --engine vllm --model "$deepseek" -q
convert "$deepseek" "$once/by-file" --layout "$once/layout.json"
convert "$tiny" "$once/o" --backend marlin --engine vllm==0.33.0
convert "$tiny" "$once/q" --backend marlin --engine sglang
# a wrong code and a wrong pad differ too
put "$once/o/packed/packed-00001.safetensors" 4096 '\377'
put "$once/o/packed/packed-00001.safetensors" $((4096 + 65536 - 1)) '\001'

test_tensors() {
  expect 'diff of an output with itself' 0 'tensors are equal' '' "$program" diff "$once/q" "$once/q"
  expect 'diff' 1 'w13_weight: 3 of 3 experts differ.*other row order of w13' '' "$program" diff "$once/q" "$once/o"
  expect 'said once for all layers' 1 '^  the same in 2 more, to model.layers.2.mlp.experts.w13_weight_scale$' '' "$program" diff "$once/q" "$once/o"
  expect 'which is which' 1 "A, $once/q, is marlin of .*; B, $once/o, is marlin of " '' "$program" diff "$once/q" "$once/o"
  expect 'the summary' 1 '^[0-9]+ tensors compared, [0-9]+ differ or are not in both$' '' "$program" diff "$once/q" "$once/o"
  expect 'what only B has' 1 'w13_weight_bias: not in A' '' "$program" diff "$once/o" "$once/q"
}
test_layer_that_one_lacks() {
  expect 'a layer that only B has' 1 'layers.2.mlp.experts.w2_bias: not in A' '' "$program" diff "$once/o-less" "$once/o-more" -v
  expect 'and its other tensors' 1 'layers.2.input_layernorm.weight: not in A' '' "$program" diff "$once/o-less" "$once/o-more" -v
  expect 'which A has not' 1 'layers.2.input_layernorm.weight: not in B' '' "$program" diff "$once/o-more" "$once/o-less" -v
  every_line() { [ "$("$program" diff "$once/q" "$once/o" -v | grep -c w13_weight:)" = 3 ]; }
  expect 'every one with -v' 0 '' '' every_line
}
# vLLM's bytes of deepgemm-mega are the same
test_names_of_the_same_bytes() {
  expect "B's own name for its bytes" 1 'these are the bytes of deepgemm-mega of sglang, layout version 1$' '' \
    "$program" diff "$once/deepgemm" "$once/mega"
  expect "a layout file's output beside the built-in's" 0 '^[0-9]+ tensors are equal$' '' \
    "$program" diff "$once/by-file" "$once/deepgemm"
  expect 'as JSON' 0 '"equal":true,.*"differences":\[\]' '' "$program" diff "$once/by-file" "$once/deepgemm" --json
  expect 'and which is which' 0 'is deepgemm of vllm, layout version file-.*; B,' '' "$program" diff "$once/by-file" "$once/deepgemm"
}
test_sets_that_one_lacks() {
  cp -r "$once/mega" mega
  prepare "$program" convert "$deepseek" mega --backend deepgemm --engine sglang --add --no-loader -q
  expect 'sets that one of them lacks' 1 '^[0-9]+ tensors compared, 0 differ or are not in both; 3 sets are in one only$' '' \
    "$program" diff "$once/deepgemm" mega
}
test_opposite_facts() {
  synth gpt-oss-20b "$dir/layers" --tiny --layers 1
  convert "$dir/layers" "$dir/out1" --backend marlin --engine vllm --tp-size 2
  convert "$dir/layers" "$dir/out2" --backend marlin --engine sglang
  for set in '1 vllm' '2 vllm'; do
    prepare "$program" convert "$dir/layers" "$dir/out${set% *}" --backend triton-hopper --engine vllm --tp-size ${set% *} --add -q
  done
  only_in_one() { "$program" diff "$dir/out1" "$dir/out2" | grep -c '^only in'; }
  expect 'opposite facts stand alone' 0 '^4$' '' only_in_one
}
test_other_folders() {
  expect 'with the checkpoint' 1 'not in B' 'holds no packed tensor; .* compare with: mxfp4-pack verify .*/deepgemm --source ' \
    "$program" diff "$once/deepgemm" "$deepseek"

  # a dump of one rank has each tensor once
  mkdir "$dir/dump"
  cp "$once/deepgemm/packed/packed-00001.safetensors" "$dir/dump/a.safetensors"
  expect 'a dump' 0 'tensors are equal' '' "$program" diff "$once/deepgemm" "$dir/dump" --rank 0
  cp "$dir/dump/a.safetensors" "$dir/dump/b.safetensors"
  expect 'of two ranks' 2 '' 'dump/b.safetensors: .* is in .*/a.safetensors already; each tensor was expected once: give the files of one rank$' \
    "$program" diff "$once/deepgemm" "$dir/dump" --rank 0
  expect 'nothing to compare' 2 '' 'nowhere: no such directory' "$program" diff "$dir/nowhere" "$tiny"
}
run_cases
