#!/usr/bin/env bash
# Weights of zeros only, NaN and infinity: refused in every way of a conversion, or converted and called so.
# tests/cases/contents.py has the messages. usage: contents.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

with() {  # NAME WHAT TENSOR..
  synth gpt-oss-20b "$1" --tiny --layers 4
  prepare python3 "$root/tests/support/change_tensors.py" "$@"
}
with_hole() {  # NAME TENSOR:BYTES, of larger tensors
  synth gpt-oss-20b "$1" --tiny --layers 2 --hidden 1024 --intermediate 1024 --vocab 4096
  prepare python3 "$root/tests/support/change_tensors.py" "$1" zeros "model.layers.1.$2"
}
on() { "$program" convert "$1" "$2" --backend marlin --engine vllm "${@:3}"; }
parts() { on "$1" parts -q --part 0/2 "${@:2}" && on "$1" parts -q --part 1/2 "${@:2}"; }
expert() { with "$1" zeros layers.2.mlp.experts.gate_up_proj_blocks@1; }
found='warning: .*gate_up_proj_blocks, expert 1: holds only zeros$'

test_every_line() {
  expert expert
  expect 'one cause and what to do' 2 '' '^mxfp4-pack: error: [^ ]*safetensors: model.layers.2.*, expert 1: holds only zeros$' on expert out -q
  also '^mxfp4-pack: error: expert: damaged; fetch it again, or give --allow-incomplete to convert it$'
  also . 2
  nothing out .out*
  with layer zeros layers.3.
  expect 'a layer of zeros' 2 '' 'layers.3.mlp.experts.gate_up_proj_blocks, expert 0: holds only zeros, as do [0-9]+ more' on layer out -q
  also 'layers.3.input_layernorm.weight: holds only zeros, as does 1 more norm, the last'
  also 'layers.3.mlp.router.weight: holds only zeros, as do 4 more weights, the last'
}
test_other_ways() {
  expert expert
  expect 'at two ranks' 2 '' 'expert 1: holds only zeros$' on expert tp2 --tp-size 2 -q
  expect 'parts' 2 '' 'holds only zeros' parts expert
  with norm zeros model.norm.weight
  expect 'with whole shards' 2 '' 'model.norm.weight: holds only zeros$' on norm linked --link -q
  with nan nan layers.1.self_attn.q_proj.bias
  prepare parts nan --allow-incomplete --threads 1
  expect 'parts that were allowed' 0 '' 'q_proj.bias: holds NaN$' "$program" merge parts
  expect 'and say so' 0 '^ *"allow_incomplete": true,$' '' cat parts/mxfp4-pack.json
}
test_holes_in_other_ways() {
  with_hole hole self_attn.o_proj.weight:50001-120002
  with_hole codes mlp.experts.gate_up_proj_blocks:300003-700001
  expect 'at two ranks' 2 '' 'has a hole of zeros$' on codes tp2 --tp-size 2 -q
  expect 'with whole shards' 2 '' 'has a hole of zeros$' on hole linked --link -q
  expect 'parts' 2 '' 'has a hole of zeros' parts codes
}
test_allowed() {
  expert expert
  expect 'it is converted' 0 '' "$found" on expert out --allow-incomplete
  expect 'the same again is no other conversion' 0 '' 'unchanged' on expert out --allow-incomplete
  expect 'from one form to another it stays so' 0 '' "$found" on out again
  expect 'the other has it, too' 0 '^ *"allow_incomplete": true,$' '' cat again/mxfp4-pack.json
  expect 'inspect says it' 0 '^incomplete: converted with --allow-incomplete' '' "$program" inspect again
  expect 'a set beside it' 0 '' "$found" "$program" convert expert out --backend triton-hopper --engine vllm --add
  synth gpt-oss-20b whole --tiny --layers 4
  expect 'of a whole checkpoint nothing is said' 0 '' 'check it with' on whole mute --allow-incomplete
  expect 'nor written' 1 '' '' grep allow_incomplete mute/mxfp4-pack.json
}
test_nan_scales() {
  with nan nan layers.0.mlp.experts.gate_up_proj_scales@0
  prepare on nan out --allow-incomplete -q
  expect 'verify computes the others' 0 '^ +16 +2/3 .*right$' \
    'layers.0.mlp.experts: NaN or infinity in 1 expert of the source, 0 first: not computed$' "$program" verify out --source nan
  also 'right at level kernels .*; the checkpoint is incomplete: convert found weights of zeros, NaN or infinity'
  with none nan layers.0.mlp.experts.gate_up_proj_bias@{0..2}
  prepare on none none-out --allow-incomplete -q
  expect 'no expert is left' 0 'right at level bytes' 'NaN or infinity in 3 experts' "$program" verify none-out --source none
  expect 'level kernels was asked for' 2 '' 'none-out: no layer can be computed, so level kernels is not reached' \
    "$program" verify none-out --source none --level kernels
  expect 'a set beside it, without the option' 0 '' 'scales: holds NaN$' "$program" convert nan out --backend triton-hopper --engine vllm --add
}
run_cases
