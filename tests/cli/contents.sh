#!/usr/bin/env bash
# Weights of zeros only, NaN and infinity: refused, or converted and called so. usage: contents.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

# holes of zeros
large() {  # as with, of larger tensors
  synth "$2" "$1" --tiny --layers 2 --hidden 1024 --intermediate 1024 --vocab 4096
  [ $# -le 2 ] || prepare python3 "$root/tests/support/change_tensors.py" "$1" "${@:3}"
}
layer=model.layers.1
with() {  # NAME MODEL WHAT TENSOR..
  synth "$2" "$1" --tiny --layers 4
  prepare python3 "$root/tests/support/change_tensors.py" "$1" "${@:3}"
}
on() { "$program" convert "$1" "$2" --backend marlin --engine vllm "${@:3}"; }
names_only() { ls -A | grep -c "^\.*$1"; }
# refused NAME LINE: LINE is all that is said, beside what to do; OUT is not there, nor anything beside it
refused() {
  expect "$1: convert" 2 '' "^mxfp4-pack: error: [^ ]*safetensors: $2$" on "$1" "$1-out" -q
  also "^mxfp4-pack: error: $1: damaged; fetch it again, or give --allow-incomplete to convert it$" 1
  also . 2
  expect "$1: nothing is left" 1 '^0$' '' names_only "$1-out"
}
test_expert_matrices() {
  synth gpt-oss-20b whole --tiny --layers 4
  expect 'a whole checkpoint' 0 '' '' on whole whole-out -q
  with expert gpt-oss-20b zeros layers.2.mlp.experts.gate_up_proj_blocks@1
  refused expert 'model.layers.2.mlp.experts.gate_up_proj_blocks, expert 1: holds only zeros'
  with experts deepseek-v4-flash zeros layers.1.ffn.experts.0.w2.weight layers.3.ffn.experts.1.w1.weight layers.3.ffn.experts.1.w3.weight
  refused experts 'layers.1.ffn.experts.0.w2.weight: holds only zeros, as do 2 more expert matrices, the last .*: layers.3.ffn.experts.1.w3.weight'
}
test_layer() {
  with layer gpt-oss-20b zeros layers.3.
  expect 'a layer of zeros' 2 '' 'layers.3.mlp.experts.gate_up_proj_blocks, expert 0: holds only zeros, as do [0-9]+ more' on layer layer-out -q
  also 'layers.3.input_layernorm.weight: holds only zeros, as does 1 more norm, the last'
  also 'layers.3.mlp.router.weight: holds only zeros, as do 4 more weights, the last'
}
test_norms() {
  with norm gpt-oss-20b zeros model.norm.weight
  refused norm 'model.norm.weight: holds only zeros'
  with norms deepseek-v4-flash zeros layers.0.attn_norm.weight layers.1.attn_norm.weight
  refused norms 'layers.0.attn_norm.weight: holds only zeros, as does 1 more norm, the last .*: layers.1.attn_norm.weight'
}
test_other_weights() {
  with embedding kimi-k3 zeros embed_tokens.weight
  refused embedding '[^ ]*embed_tokens.weight: holds only zeros'
  with table deepseek-v4-flash zeros layers.0.ffn.gate.tid2eid
  refused table 'layers.0.ffn.gate.tid2eid: holds only zeros'
}
test_nan_and_infinity() {
  with nan gpt-oss-20b nan layers.1.self_attn.q_proj.bias
  refused nan 'model.layers.1.self_attn.q_proj.bias: holds NaN'
  with nans deepseek-v4-flash nan layers.0.attn_norm.weight layers.2.ffn_norm.weight
  refused nans 'layers.0.attn_norm.weight: holds NaN, as does 1 more tensor, the last .*: layers.2.ffn_norm.weight'
  with expert-bias gpt-oss-20b nan layers.2.mlp.experts.down_proj_bias
  refused expert-bias 'model.layers.2.mlp.experts.down_proj_bias: holds NaN'
  with scales gpt-oss-20b zeros layers.1.mlp.experts.gate_up_proj_scales@0
  refused scales 'model.layers.1.mlp.experts.gate_up_proj_scales, expert 0: holds only zeros'
  with infinity gpt-oss-20b inf lm_head.weight
  refused infinity 'lm_head.weight: holds infinity'
  with minus deepseek-v4-flash -inf embed.weight
  refused minus 'embed.weight: holds infinity'
}
# what may be so
test_what_may_be_so() {
  with biases gpt-oss-20b zeros self_attn.q_proj.bias self_attn.sinks router.bias down_proj_bias
  expect 'biases and sinks of zeros' 0 '' '' on biases biases-out -q
  with masked gpt-oss-20b -inf layers.1.mlp.router.bias
  expect 'a bias that forbids an expert' 0 '' '' on masked masked-out -q
  with centred qwen3-coder-next-quark zeros layers.1.input_layernorm.weight
  expect 'a norm that is centred on zero' 0 '' '' on centred centred-out -q --no-loader
}
test_holes() {
  large large gpt-oss-20b
  expect 'larger tensors' 0 '' 'check it with' on large large-out
  also zeros 0
  large hole gpt-oss-20b zeros $layer.self_attn.o_proj.weight:50001-120002
  refused hole "$layer.self_attn.o_proj.weight, bytes 50001-12000[0-9] of 131072: has a hole of zeros"
  large codes gpt-oss-20b zeros $layer.mlp.experts.gate_up_proj_blocks:300003-700001
  refused codes "$layer.mlp.experts.gate_up_proj_blocks, bytes 30000[0-3]-70000[0-9] of [0-9]+: has a hole of zeros"
  large scale gpt-oss-20b zeros $layer.mlp.experts.down_proj_scales:10007-20005
  refused scale "$layer.mlp.experts.down_proj_scales, bytes 10007-20004 of [0-9]+: has a hole of zeros"
  large some gpt-oss-20b zeros model.norm.weight:400-1000 $layer.input_layernorm.weight:1024-2048
  refused some "$layer.input_layernorm.weight, bytes 1024-2047 of 2048: has a hole of zeros, as does 1 more tensor, the last .*model.norm.weight, bytes 400-999 of 2048"
  large embed gpt-oss-20b zeros embed_tokens:1000001-3000001
  refused embed 'model.embed_tokens.weight, bytes 1000001-3000000 of 8388608: has a hole of zeros'
  large separate deepseek-v4-flash zeros layers.1.ffn.experts.2.w2.weight:100003-300001
  refused separate 'layers.1.ffn.experts.2.w2.weight, bytes 10000[0-3]-30000[0-9] of 524288: has a hole of zeros'
}
test_end_of_a_shard() {
  large tail gpt-oss-20b # a shard that was cut and filled up
  prepare python3 -c 'import sys
with open(sys.argv[1], "r+b") as file:
  file.seek(-1500001, 2)
  file.write(bytes(1500001))' tail/model-00001-of-00001.safetensors
  expect 'the end of a shard' 2 '' "$layer.mlp.experts.gate_up_proj_blocks, bytes .*: has a hole of zeros$" on tail tail-out -q
  also 'do [0-9]+ more expert matrices, the last .*gate_up_proj_scales, expert 2$'
}
# rows of zeros
test_rows_of_zeros() {
  large pruned gpt-oss-20b zeros $layer.mlp.experts.gate_up_proj_blocks:$((100 * 512))-$((400 * 512))
  expect 'rows of zeros in an expert' 0 '' "warning: .*$layer.mlp.experts.gate_up_proj_blocks, rows 100-399: has rows of zeros only$" on pruned pruned-out
  large unused gpt-oss-20b zeros embed_tokens:$((3100 * 2048))-$((4096 * 2048)) lm_head:$((4000 * 2048))-$((4096 * 2048))
  expect 'rows of unused tokens' 0 '' 'check it with' on unused unused-out
  also zeros 0
}
test_hole_in_every_way() {
  large hole gpt-oss-20b zeros $layer.self_attn.o_proj.weight:50001-120002
  large codes gpt-oss-20b zeros $layer.mlp.experts.gate_up_proj_blocks:300003-700001
  expect 'a hole is allowed' 0 '' 'warning: .*has a hole of zeros$' on hole hole-out --allow-incomplete
  expect 'and the manifest has it' 0 '^ *"allow_incomplete": true,$' '' cat hole-out/mxfp4-pack.json
  expect 'a hole at two ranks' 2 '' 'has a hole of zeros$' on codes codes-tp2 --tp-size 2 -q
  expect 'a hole in a whole shard' 2 '' 'has a hole of zeros$' on hole hole-linked --link -q
  expect 'holes in parts' 2 '' 'has a hole of zeros' bash -c '"$0" convert codes codes-parts --backend marlin --engine vllm -q --part 0/2 &&
  "$0" convert codes codes-parts --backend marlin --engine vllm -q --part 1/2' "$program"
}
# allowed
test_allowed() {
  with expert gpt-oss-20b zeros layers.2.mlp.experts.gate_up_proj_blocks@1
  synth gpt-oss-20b whole --tiny --layers 4
  found='warning: .*gate_up_proj_blocks, expert 1: holds only zeros$'
  expect 'it is converted if that is allowed' 0 '' "$found" on expert allowed --allow-incomplete
  expect 'the manifest has it' 0 '^ *"allow_incomplete": true,$' '' cat allowed/mxfp4-pack.json
  expect 'verify repeats it' 0 'right at level kernels .*; the checkpoint is incomplete: convert found weights of zeros' \
    'warning: convert found' "$program" verify allowed --source expert
  expect 'the same again is no other conversion' 0 '' 'unchanged' on expert allowed --allow-incomplete
  expect 'from one form to another it stays so' 0 '' "$found" on allowed again
  expect 'the other has it, too' 0 '^ *"allow_incomplete": true,$' '' cat again/mxfp4-pack.json
  expect 'a set beside it' 0 '' "$found" "$program" convert expert allowed --backend triton-hopper --engine vllm --add
  expect 'of a whole checkpoint nothing is said' 0 '' 'check it with' on whole mute --allow-incomplete
  expect 'nor written' 1 '' '' grep allow_incomplete mute/mxfp4-pack.json
}
# other ways of a conversion
test_other_ways() {
  with expert gpt-oss-20b zeros layers.2.mlp.experts.gate_up_proj_blocks@1
  with norm gpt-oss-20b zeros model.norm.weight
  with nan gpt-oss-20b nan layers.1.self_attn.q_proj.bias
  expect 'at two ranks' 2 '' 'expert 1: holds only zeros$' on expert tp2 --tp-size 2 -q
  expect 'with whole shards' 2 '' 'model.norm.weight: holds only zeros$' on norm linked --link -q
  expect 'a part' 2 '' 'holds (only zeros|NaN)' bash -c '"$0" convert expert parts --backend marlin --engine vllm -q --part 0/2 &&
  "$0" convert expert parts --backend marlin --engine vllm -q --part 1/2' "$program"
  on nan resumed --threads 1 -q --allow-incomplete --part 0/2 && on nan resumed --threads 1 -q --allow-incomplete --part 1/2
  expect 'parts that were allowed' 0 '' 'q_proj.bias: holds NaN$' "$program" merge resumed
  expect 'and say so' 0 '^ *"allow_incomplete": true,$' '' cat resumed/mxfp4-pack.json
}
run_cases
