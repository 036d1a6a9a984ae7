#!/usr/bin/env bash
# A whole state for SGLang. usage: sharded_state.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

state=st part=st/model-rank-1-part-0.safetensors
sharded() { "$program" convert "$1" "$state" --engine "${3-sglang}" --backend "$2" --format sharded-state --tp-size "${4-2}"; }
serve="sglang serve $state --load-format sharded_state --tp-size 2 --moe-runner-backend flashinfer_mxfp4"

test_served_and_right() {
  expect 'sharded state' 0 '' "serve it with: $serve\$" sharded "$tiny" flashinfer-cutlass
  expect 'how it is served' 0 "^  serve     $serve\$" '' "$program" inspect "$state"
  expect 'sharded state is right' 0 'right at level kernels' '' "$program" verify "$state" --source "$tiny"
  expect 'of one node' 2 '' 'is verified by one node, without --part' "$program" verify "$state" --part 0/2
  expect 'the config is the checkpoint'"'"'s' 0 '' '' cmp "$state/config.json" "$tiny/config.json"
  expect 'a default load finds no file' 0 'use--load-format-sharded_state' '' \
    cat "$state/model.safetensors.index.json"
  expect 'each rank has its parts' 0 '^2$' '' sh -c "ls '$state' | grep -c 'model-rank-1-part-[01].safetensors'"
  expect 'unpack' 0 '' '60 tensors, [0-9.]+ kB, each with its source.s checksum, in [0-9.]+ s \([0-9.]+ [kMG]B/s\)$' "$program" unpack "$state" "st-u"
  put_last "$part" '\377'
  expect 'a changed byte' 1 'model-rank-1-part-0.safetensors: 1 bytes differ from the copied' '' \
    "$program" verify "$state"
}
test_refused() {
  expect 'another engine' 2 '' 'not for marlin of vllm' sharded "$tiny" marlin vllm
  expect 'another backend' 2 '' 'not for triton-hopper of sglang' sharded "$tiny" triton-hopper
  expect 'another family' 2 '' 'is for GPT-OSS' sharded "$root/testdata/tiny/deepseek-v4" marlin
  expect 'ranks that do not split' 2 '' 'rows do not split into 5 ranks' sharded "$tiny" marlin sglang 5
}
run_cases
