#!/usr/bin/env bash
# diff of two outputs. usage: diff.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

convert "$tiny" "$dir/o" --backend marlin --engine vllm
convert "$tiny" "$dir/q" --backend marlin --engine sglang
# a wrong code and a wrong pad differ too
put "$dir/o/packed/packed-00001.safetensors" 4096 '\377'
put "$dir/o/packed/packed-00001.safetensors" $((4096 + 65536 - 1)) '\001'
expect 'diff of an output with itself' 0 'tensors are equal' '' "$program" diff "$dir/q" "$dir/q"
expect 'diff' 1 'w13_weight: 3 of 3 experts differ.*other row order of w13' '' "$program" diff "$dir/q" "$dir/o"
expect 'said once for all layers' 1 '^  the same in 2 more, to model.layers.2.mlp.experts.w13_weight_scale$' '' "$program" diff "$dir/q" "$dir/o"
expect 'which is which' 1 "A, $dir/q, is marlin of .*; B, $dir/o, is marlin of " '' "$program" diff "$dir/q" "$dir/o"
expect 'the summary' 1 '^[0-9]+ tensors compared, [0-9]+ differ or are not in both$' '' "$program" diff "$dir/q" "$dir/o"
expect 'what only B has' 1 'w13_weight_bias: not in A' '' "$program" diff "$dir/o" "$dir/q"
prepare "$program" synth gpt-oss-20b "$dir/less" --tiny --layers 2 -q
prepare "$program" synth gpt-oss-20b "$dir/more" --tiny --layers 3 -q
for source in less more; do convert "$dir/$source" "$dir/o-$source" --backend marlin --engine vllm; done
expect 'a layer that only B has' 1 'layers.2.mlp.experts.w2_bias: not in A' '' "$program" diff "$dir/o-less" "$dir/o-more" -v
expect 'and its other tensors' 1 'layers.2.input_layernorm.weight: not in A' '' "$program" diff "$dir/o-less" "$dir/o-more" -v
expect 'which A has not' 1 'layers.2.input_layernorm.weight: not in B' '' "$program" diff "$dir/o-more" "$dir/o-less" -v
every_line() { [ "$("$program" diff "$dir/q" "$dir/o" -v | grep -c w13_weight:)" = 3 ]; }
expect 'every one with -v' 0 '' '' every_line
# vLLM's bytes of deepgemm-mega are the same
tiny=$root/testdata/tiny/deepseek-v4
convert "$tiny" "$dir/deepgemm" --backend deepgemm --engine vllm
convert "$tiny" "$dir/mega" --backend deepgemm-mega --engine sglang
expect "B's own name for its bytes" 1 'these are the bytes of deepgemm-mega of sglang, layout version 1$' '' \
  "$program" diff "$dir/deepgemm" "$dir/mega"
prepare "$program" layout "$dir/layout.json" --backend deepgemm --engine vllm --model "$tiny" -q
convert "$tiny" "$dir/by-file" --layout "$dir/layout.json"
expect "a layout file's output beside the built-in's" 0 '^[0-9]+ tensors are equal$' '' \
  "$program" diff "$dir/by-file" "$dir/deepgemm"
expect 'as JSON' 0 '"equal":true,.*"differences":\[\]' '' "$program" diff "$dir/by-file" "$dir/deepgemm" --json
expect 'and which is which' 0 'is deepgemm of vllm, layout version file-.*; B,' '' "$program" diff "$dir/by-file" "$dir/deepgemm"
prepare "$program" convert "$tiny" "$dir/mega" --backend deepgemm --engine sglang --add --no-loader -q
expect 'sets that one of them lacks' 1 '^[0-9]+ tensors compared, 0 differ or are not in both; 3 sets are in one only$' '' \
  "$program" diff "$dir/deepgemm" "$dir/mega"
synth gpt-oss-20b "$dir/layers" --tiny --layers 1
convert "$dir/layers" "$dir/out1" --backend marlin --engine vllm --tp-size 2
convert "$dir/layers" "$dir/out2" --backend marlin --engine sglang
for set in '1 vllm' '2 vllm'; do
  prepare "$program" convert "$dir/layers" "$dir/out${set% *}" --backend triton-hopper --engine vllm --tp-size ${set% *} --add -q
done
only_in_one() { "$program" diff "$dir/out1" "$dir/out2" | grep -c '^only in'; }
expect 'opposite facts stand alone' 0 '^4$' '' only_in_one

expect 'with the checkpoint' 1 'not in B' 'holds no packed tensor; .* compare with: mxfp4-pack verify .*/deepgemm --source ' \
  "$program" diff "$dir/deepgemm" "$tiny"

# a dump of one rank has each tensor once
mkdir "$dir/dump"
cp "$dir/deepgemm/packed/packed-00001.safetensors" "$dir/dump/a.safetensors"
expect 'a dump' 0 'tensors are equal' '' "$program" diff "$dir/deepgemm" "$dir/dump" --rank 0
cp "$dir/dump/a.safetensors" "$dir/dump/b.safetensors"
expect 'of two ranks' 2 '' 'dump/b.safetensors: .* is in .*/a.safetensors already; each tensor was expected once: give the files of one rank$' \
  "$program" diff "$dir/deepgemm" "$dir/dump" --rank 0
expect 'nothing to compare' 2 '' 'nowhere: no such directory' "$program" diff "$dir/nowhere" "$tiny"
finish
