#!/usr/bin/env bash
# What no loader reads is said before anything is written. usage: loader.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

convert() { "$program" convert "$tiny" "$dir/$1" --engine "$2" --backend "$3" "${@:4}"; }

expect 'backends: a loader' 0 '^marlin +vllm .* 0\.26\.0$' 'CUDA' "$program" backends
expect 'backends: none' 0 '^triton-hopper +transformers .* none$' 'CUDA' "$program" backends
expect 'backends: as JSON' 0 '"backend":"triton-hopper","engine":"transformers".*"loader":""' '' "$program" backends --json
unread='no loader of transformers is known to read triton-hopper \(layout version c\) of gpt-oss'
expect 'a warning' 0 '' "warning: $unread" convert t transformers triton-hopper
expect 'required' 2 '' "error: $unread" convert r transformers triton-hopper --require-loader
expect 'nothing written' 1 '' '' test -e "$dir/r"
expect 'there is one' 0 '' 'packed tensors for vllm' convert m vllm marlin --require-loader
finish
