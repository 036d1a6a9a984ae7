#!/usr/bin/env bash
# unpack: the source again, or a refusal that leaves nothing. usage: unpack.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

convert "$tiny" "$dir/o" --backend marlin --engine vllm
expect 'unpack' 0 '' 'tensors, each with its source' "$program" unpack "$dir/o" "$dir/u"
expect 'what was unpacked is the source, every file of it' 0 '' '' diff -r "$dir/u" "$tiny"
expect 'and verify takes it as that' 0 'right' '' "$program" verify "$dir/o" --source "$dir/u"
cp "$dir/o/packed/source-headers" "$dir/kept"
put "$dir/o/packed/source-headers" 20 'x'
expect 'unpack notices a wrong header' 2 '' 'source-headers: it does not have the checksum' "$program" unpack "$dir/o" "$dir/u1"
rm "$dir/o/packed/source-headers"
expect 'and a missing one' 2 '' 'source-headers: missing' "$program" unpack "$dir/o" "$dir/u1"
mv "$dir/kept" "$dir/o/packed/source-headers"

# the last word of layer 0's w13 codes of expert 0 holds columns beyond hidden: a pad
put "$dir/o/packed/packed-00001.safetensors" $((4096 + 65536 - 1)) '\001'
expect 'unpack notices a wrong pad byte' 2 '' 'w13_weight: does not have the checksum in' "$program" unpack "$dir/o" "$dir/u2"
put "$dir/o/packed/packed-00001.safetensors" 4096 '\377'
expect 'unpack notices a wrong code' 2 '' 'w13_weight: does not have the checksum in' "$program" unpack "$dir/o" "$dir/u3"
expect 'and leaves nothing' 2 '' 'cannot open' "$program" inspect "$dir/u3"

for model in $("$program" synth --help | sed -n 's/^Models: //p' | tr -d ','); do
  synth "$model" "$dir/$model" --tiny
  convert "$dir/$model" "$dir/$model-o" --backend marlin --engine vllm
  "$program" unpack "$dir/$model-o" "$dir/$model-u" -q
  expect "unpack gives every file of $model" 0 '' '' diff -r "$dir/$model-u" "$dir/$model"
done

synth deepseek-v4-flash "$dir/square" --tiny --hidden 256 --intermediate 256
convert "$dir/square" "$dir/lossy" --backend flashinfer-humming --engine vllm
expect 'unpack of a lossy set' 2 '' "flashinfer-humming is lossy: the source's codes and scales are not in it" \
  "$program" unpack "$dir/lossy" "$dir/lossy-again"
finish
