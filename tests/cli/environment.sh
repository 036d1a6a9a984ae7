#!/usr/bin/env bash
# Defaults from environment variables. usage: environment.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

test_defaults() {
  expect 'variables in the help' 0 '\[env: MXFP4_PACK_ENGINE\]' '' "$program" help convert
  expect 'defaults from the environment' 0 '"engine":"sglang"' '' \
    env MXFP4_PACK_BACKEND=marlin MXFP4_PACK_ENGINE=sglang MXFP4_PACK_THREADS=1 "$program" convert "$tiny" "$dir/env" --json -q
}
test_wrong_values() {
  convert "$tiny" env --backend marlin --engine sglang
  expect 'a wrong default' 2 '' "error: MXFP4_PACK_THREADS: '?many'? is no" env MXFP4_PACK_THREADS=many "$program" verify "$dir/env"
  expect 'no device' 2 '' "error: MXFP4_PACK_DEVICE: (no device 'gpu'|'gpu' is not)" env MXFP4_PACK_DEVICE=gpu "$program" verify "$dir/env"
  expect 'an option of the same command line' 2 '' 'error: --threads: x is no number' \
    env MXFP4_PACK_THREADS=1 "$program" verify "$dir/env" --threads x
  expect 'where the option is given' 0 '' '' env MXFP4_PACK_THREADS=many "$program" verify "$dir/env" --threads 1 -q
  expect 'of an option that the command lacks' 0 '' '' env MXFP4_PACK_DEVICE=gpu MXFP4_PACK_ENGINE=x "$program" diff "$dir/env" "$dir/env" -q
}
test_values_of_convert() {
  convert_by() { env "$@" "$program" convert "$tiny" "$dir/env2" --backend marlin; }
  expect 'no engine' 2 '' "error: MXFP4_PACK_ENGINE: no engine 'vlm', but .*; did you mean vllm" convert_by MXFP4_PACK_ENGINE=vlm
  expect 'no release' 2 '' 'error: MXFP4_PACK_ENGINE: .*vllm==x: no release of vllm' convert_by MXFP4_PACK_ENGINE=vllm==x
  expect 'no backend' 2 '' "error: MXFP4_PACK_BACKEND: no backend 'marln'" \
    env MXFP4_PACK_BACKEND=marln "$program" convert "$tiny" "$dir/env2" --engine vllm
  expect 'the same value on the command line' 2 '' "error: no backend 'vllm'" env MXFP4_PACK_ENGINE=vllm "$program" convert "$tiny" "$dir/env2" --backend vllm
  expect 'and of another option' 2 '' "error: --level: '1' is none of" env MXFP4_PACK_THREADS=1 "$program" verify "$dir/env" --level 1
  expect 'or a layout version' 2 '' "error: backend marlin of vllm has no layout version '3'" \
    env MXFP4_PACK_THREADS=3 "$program" convert "$tiny" "$dir/env2" --engine vllm --backend marlin --layout-version 3
}
test_seconds_of_progress() {
  for seconds in abc 1x 0 -1 inf nan; do
    expect "progress each $seconds" 2 '' "error: MXFP4_PACK_PROGRESS: '$seconds' is no number of seconds above 0" \
      env MXFP4_PACK_PROGRESS=$seconds "$program" inspect "$tiny"
  done
}
run_cases
