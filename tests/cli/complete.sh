#!/usr/bin/env bash
# A checkpoint without all that its config promises: refused, or converted and called so. usage: complete.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

with_file() {  # NAME FILE TEXT
  synth gpt-oss-20b "$dir/$1" --tiny
  printf "$3" >"$dir/$1/$2"
}
missing='error: model.layers.3: the layer is missing; config.json says num_hidden_layers = 4$'
without() {  # NAME MODEL PATTERN..
  synth "$2" "$dir/$1" --tiny --layers 4
  prepare python3 "$root/tests/support/without_tensors.py" "$dir/$1" "${@:3}"
}
on() { "$program" convert "$dir/$1" "$dir/$2" --backend marlin --engine vllm "${@:3}"; }

last() { without last gpt-oss-20b .layers.3.; }

test_layer_that_is_missing() {
  last
  expect 'inspect names a layer that is missing' 2 '' "$missing" "$program" inspect "$dir/last" -q
  expect 'convert names it' 2 '' "$missing" on last out
  expect 'convert says what to do' 2 '' 'incomplete; fetch what is missing, or give --allow-incomplete to convert it$' on last out
  expect 'nothing was written' 1 '' '' test -e "$dir/out"
  expect 'a dry run refuses it, too' 2 '' "$missing" on last out --dry-run
}
test_parts_that_are_missing() {
  without middle deepseek-v4-flash layers.2.
  expect 'a layer in the middle' 2 '' 'error: layers.2: the layer is missing; config.json says num_hidden_layers = 4$' on middle out
  without part kimi-k3 layers.2.block_sparse_moe.shared_experts.up_proj
  expect 'a part of a layer' 2 '' 'layers.2.block_sparse_moe.shared_experts.up_proj: missing, 1 tensor in 1 layer; ' on part out
  without bias gpt-oss-20b gate_up_proj_bias down_proj_bias
  expect 'biases that the family has' 2 '' 'mlp.experts.gate_up_proj_bias \.\. mlp.experts.down_proj_bias \(2 such\): missing in 4 of 4 layers; ' on bias out

  without every glm-5.2-quark e_score_correction_bias
  expect 'a part of every layer' 2 '' 'e_score_correction_bias: missing in 2 of 2 layers; all layers of a glm_moe_dsa' on every out
  without few deepseek-v4-flash layers.2.attn.indexer.weights_proj
  expect 'a part that few layers have' 2 '' 'layers.2.attn.indexer.weights_proj' on few out
  # a group of tensors that no layer has
  without shared glm-5.2-quark shared_expert
  expect 'shared experts that the config counts' 2 '' 'shared_expert: missing in 2 of 2 layers; config.json says n_shared_experts = 1' on shared out
  without norms kimi-k3 layernorm
  expect 'norms of all layers' 2 '' 'input_layernorm \.\. post_attention_layernorm \(2 such\): missing in 4 of 4 layers; ' on norms out
  without attention qwen3-30b-a3b-ct self_attn
  expect 'attention of all layers' 2 '' 'layers.0-3.*self_attn' on attention out
  without scales mimo-v2.6-flash layers.0.mlp.gate_proj.weight_scale layers.0.mlp.up_proj.weight_scale layers.0.mlp.down_proj.weight_scale
  expect 'scales of all FP8 matrices' 2 '' 'layers.0.mlp.down_proj: F8_E4M3 without scales$' on scales out
  synth gpt-oss-20b "$dir/vocabulary" --tiny
  prepare sed -Ei 's/"vocab_size": ?[0-9]+/"vocab_size": 100000/' "$dir/vocabulary/config.json"
  expect 'fewer rows than the vocabulary has' 2 '' 'lm_head.weight: [0-9]+ rows, and 1 more up to .*embed_tokens.weight; config.json says vocab_size = 100000$' on vocabulary out
}
test_whole_checkpoints() {
  for layers in 1 2 3 5; do
    synth deepseek-v4-flash "$dir/small$layers" --tiny --layers $layers
    expect "of $layers whole layers nothing is said" 0 '' '' "$program" inspect "$dir/small$layers" -q
  done
}
# small files
test_small_files() {
  with_file empty tokenizer.json ''
  expect 'an empty tokenizer' 2 '' 'error: tokenizer.json: 0 bytes; engines read this file$' on empty out
  expect 'inspect names it' 2 '' 'error: tokenizer.json: 0 bytes' "$program" inspect "$dir/empty" -q
  with_file cut tokenizer_config.json '{"a": [1, 2'
  expect 'a JSON file that was cut' 2 '' 'error: tokenizer_config.json: no JSON: .*; engines read this file$' on cut out
  with_file nul generation_config.json '{"a": 1}\0\0\0'
  expect 'zeros behind JSON' 2 '' 'error: generation_config.json: no JSON: holds a byte 0; engines' on nul out
  with_file zero tokenizer.model '\0\0\0'
  expect 'a tokenizer of zeros' 2 '' 'error: tokenizer.model: holds only zeros; engines' on zero out
  with_file template chat_template.jinja ''
  expect 'an empty template' 2 '' 'error: chat_template.jinja: 0 bytes' on template out
  expect 'it is allowed' 0 '' 'warning: tokenizer.json: 0 bytes' on empty out-empty --allow-incomplete
  expect 'and verify repeats it' 0 'the checkpoint is incomplete: tokenizer.json: 0 bytes' 'warning: tokenizer.json: 0 bytes' "$program" verify "$dir/out-empty"
}
test_other_files() {
  with_file other notes.json '{"a": 1'
  expect 'another JSON file' 0 '' 'warning: notes.json: no JSON: ' on other out-other
  with_file python tokenizer_config.json '{"model_max_length": Infinity}'
  expect 'JSON as Python reads it' 0 '' '' on python out-python -q
  echo '{"a": 1, "a": 2}' >"$dir/python/generation_config.json"
  touch "$dir/python/__init__.py" "$dir/python/merges.txt"
  expect 'empty files that may be so' 0 '' '' on python out-files -q
}
test_allowed() {
  last
  expect 'it is converted if that is allowed' 0 '' 'warning: model.layers.3: the layer is missing' on last out --allow-incomplete
  expect 'the manifest has it' 0 '^ *"allow_incomplete": true,$' '' cat "$dir/out/mxfp4-pack.json"
  expect 'verify repeats it' 0 'right at level kernels .*; the checkpoint is incomplete: model.layers.3: the layer is missing' \
    'warning: model.layers.3: the layer is missing' "$program" verify "$dir/out" --source "$dir/last"
  expect 'verify as JSON' 0 '"incomplete":\["model.layers.3: the layer is missing' 'warning: model.layers.3' \
    "$program" verify "$dir/out" --json
  expect 'from one form to another it stays so' 0 '' 'warning: model.layers.3' on out again
  expect 'the other has it, too' 0 '^ *"allow_incomplete": true,$' '' cat "$dir/again/mxfp4-pack.json"
  expect 'the same again is not another conversion' 0 '' 'unchanged' on last out --allow-incomplete
}
test_whole_and_allowed() {
  synth gpt-oss-20b "$dir/whole" --tiny --layers 4
  expect 'of a whole checkpoint nothing is said' 0 '' 'check it with' on whole allowed --allow-incomplete
  expect 'nor written' 1 '' '' grep allow_incomplete allowed/mxfp4-pack.json
}
run_cases
