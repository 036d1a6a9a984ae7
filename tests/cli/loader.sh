#!/usr/bin/env bash
# What no loader reads is refused before anything is written. usage: loader.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

synth kimi-k3 "$once/kimi" --tiny
newest=$(newest)
unread="error: no loader of vllm $newest reads deepgemm \(layout version 1\) of gpt-oss; use --backend marlin .*; --no-loader writes it"
convert() { "$program" convert "$tiny" "$dir/$1" --engine "$2" --backend "$3" "${@:4}"; }

test_list() {
  expect 'backends: a loader' 0 '^marlin +vllm .* 0\.26\.0' 'CUDA' "$program" backends
  expect 'backends: none' 0 '^deepgemm-mega +vllm .* none' 'CUDA' "$program" backends
  expect 'backends: as JSON' 0 '"backend":"deepgemm-mega","engine":"vllm"[^{}]*"loader":""' '' "$program" backends --json
}
test_no_loader() {
  expect 'refused' 2 '' "$unread" convert r vllm deepgemm --layout-version 1
  expect 'quietly too' 2 '' "$unread" convert r vllm deepgemm --layout-version 1 -q
  expect 'nothing is written' 1 '' '' test -e "$dir/r"
  expect 'one that is meant' 0 '' '' convert t vllm deepgemm --layout-version 1 --no-loader -q
}
test_releases() {
  expect 'one of a later release' 2 '' 'no loader of vllm 0\.26\.0 reads marlin .* of kimi-k3; it is read from 0\.[0-9]+\.0 on; ' \
    "$program" convert "$once/kimi" "$dir/k" --engine vllm==0.26.0 --backend marlin
  expect 'a release that is not known' 0 '' "warning: vllm 9.9 is newer than $newest, the newest .*; it is assumed to load the same layouts" convert n vllm==9.9 marlin
  expect 'a pre-release' 0 '' 'warning: vllm 0\.33\.0rc1 is not a known release; it is assumed to load the same layouts as 0\.33\.0' \
    convert rc vllm==0.33.0rc1 marlin
  expect 'no release loads it' 2 '' "vllm $newest has no backend deepgemm for models of family gpt-oss" convert no vllm deepgemm
  expect 'some releases load it' 2 '' 'vllm 0\.27\.0 has no backend vllm-cpu for models of family deepseek-v4; those that have it: 0\.30\.0 to' \
    "$program" convert "$root/testdata/tiny/deepseek-v4" "$dir/no" --engine vllm==0.27.0 --backend vllm-cpu
  synth minimax-m3-quark "$dir/quark" --tiny
  expect 'no release loads it' 2 '' 'layout version 2 of backend aiter-a16w4 of vllm is not for models of family quark' \
    "$program" convert "$dir/quark" "$dir/no" --engine vllm --backend aiter-a16w4 --layout-version 2
}
test_engines() {
  expect 'an engine without a loader' 2 '' "no engine 'transformers', but vllm, sglang" convert t transformers triton-hopper
  expect 'there is one' 0 '' 'packed tensors for vllm' convert m vllm marlin
}
run_cases
