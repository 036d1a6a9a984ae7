#!/usr/bin/env bash
# Incomplete checkpoints that are converted and called so; tests/cases/missing.py and files.py have what is refused.
# usage: complete.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

on() { "$program" convert "$1" "$2" --backend marlin --engine vllm "${@:3}"; }

test_whole_checkpoints() {
  for layers in 1 2 3 5; do
    synth deepseek-v4-flash small$layers --tiny --layers $layers
    expect "of $layers whole layers nothing is said" 0 '' '' "$program" inspect small$layers -q
  done
  expect 'nor if it is allowed' 0 '' 'check it with' on small2 out --allow-incomplete
  also warning 0
  expect 'nor written' 1 '' '' grep allow_incomplete out/mxfp4-pack.json
}
test_allowed() {
  synth gpt-oss-20b last --tiny --layers 4
  prepare python3 "$root/tests/support/without_tensors.py" last .layers.3.
  expect 'convert says what to do' 2 '' 'incomplete; fetch what is missing, or give --allow-incomplete to convert it$' on last out
  expect 'a dry run is refused, too' 2 '' 'error: model.layers.3: the layer is missing' on last out --dry-run
  nothing out
  expect 'it is converted if that is allowed' 0 '' 'warning: model.layers.3: the layer is missing' on last out --allow-incomplete
  expect 'verify as JSON' 0 '"incomplete":\["model.layers.3: the layer is missing' 'warning: model.layers.3' "$program" verify out --json
  expect 'from one form to another it stays so' 0 '' 'warning: model.layers.3' on out again
  expect 'the other has it, too' 0 '^ *"allow_incomplete": true,$' '' cat again/mxfp4-pack.json
  expect 'the same again is not another conversion' 0 '' 'unchanged' on last out --allow-incomplete
}
run_cases
