#!/usr/bin/env bash
# unpack: the source again, or a refusal that leaves nothing. usage: unpack.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

convert "$tiny" "$dir/o" --backend marlin --engine vllm
expect 'unpack' 0 '' 'tensors, each with its source' "$program" unpack "$dir/o" "$dir/u"
expect 'what was unpacked is the source' 0 'right' '' "$program" verify "$dir/o" --source "$dir/u"

# the last word of layer 0's w13 codes of expert 0 holds columns beyond hidden: a pad
put "$dir/o/packed/packed-00001.safetensors" $((4096 + 65536 - 1)) '\001'
expect 'unpack notices a wrong pad byte' 2 '' 'w13_weight: does not have the checksum in' "$program" unpack "$dir/o" "$dir/u2"
put "$dir/o/packed/packed-00001.safetensors" 4096 '\377'
expect 'unpack notices a wrong code' 2 '' 'w13_weight: does not have the checksum in' "$program" unpack "$dir/o" "$dir/u3"
expect 'and leaves nothing' 2 '' 'cannot open' "$program" inspect "$dir/u3"

synth deepseek-v4-flash "$dir/square" --tiny --hidden 256 --intermediate 256
convert "$dir/square" "$dir/lossy" --backend flashinfer-humming --engine vllm
expect 'unpack of a lossy set' 2 '' "flashinfer-humming is lossy: the source's codes and scales are not in it" \
  "$program" unpack "$dir/lossy" "$dir/lossy-again"
finish
