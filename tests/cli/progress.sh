#!/usr/bin/env bash
# The progress of a run on terminals, and without a terminal; -v and the final lines.
# usage: progress.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

run() { "$program" convert "$once/model" "$dir/r" --backend marlin --engine vllm==0.33.0 --force "$@" 2>&1 >"$dir/stdout"; }
convert_at() { at "$1" "$program" convert "$once/model" "$dir/at-$1" --backend marlin --engine vllm "${@:2}"; }
synth gpt-oss-20b "$once/model" --layers 1 --experts 8 --vocab 8192

# of what progress wrote over, without its escapes
progress_fits() {
  "${@:2}" | tr '\r' '\n' | sed 's/\x1b\[[0-9;]*[mK]//g' | grep '^packing\|^[0-9]* %' |
    awk -v columns="$1" 'length($0) >= columns {print; wide = 1} END {exit wide || NR == 0}'
}
test_width() {
  for columns in 40 80 120; do
    expect "progress fits $columns columns" 0 '' '' progress_fits $columns convert_at $columns
  done
}
test_on_a_terminal() {
  expect 'it begins without a time left' 0 'packing 0 B of .*, -:--:-- left' '' convert_at 120 --force
  expect 'on a terminal: amount, rate, time left' 0 'packing .* of .* \([0-9]+ %\), [0-9.]+ [kMG]B/s, [0-9]+:[0-9]{2}:[0-9]{2} left' '' \
    at 120 env MXFP4_PACK_PROGRESS=0.001 "$program" convert "$once/model" "$dir/t" --backend marlin --engine vllm
  expect 'level kernels shows its batches' 0 'computing [0-9] of [0-9] batches \([0-9]+ %\), 0:00:[0-9]{2}' '' \
    at 120 "$program" verify "$dir/t" --source "$once/model" --tokens 1,16
}
test_off_a_terminal() {
  quiet_for_short() { ! run | grep -q packing; }
  expect 'off a terminal nothing within 30 s' 0 '' '' quiet_for_short
  often() { MXFP4_PACK_PROGRESS=0.001 run; }
  expect 'and then lines of their own' 0 '^mxfp4-pack: packing .* left$' '' often
  expect 'the closing line' 0 ': 6 packed tensors for vllm marlin, .* in all, in [0-9.]+ s \([0-9.]+ [kMG]B/s\)$' '' run
  expect 'the next command' 0 "check it with: mxfp4-pack verify $dir/r --source $once/model\$" '' run
  expect 'what it fits' 0 '^mxfp4-pack: it fits vllm 0.26.0 to [0-9.]+ on SM75, SM80 and later; the loader sets moe_backend marlin; it requires VLLM_MARLIN_INPUT_DTYPE unset$' '' run
  expect 'how to serve' 0 "serve it with: vllm serve $dir/r\$" '' run
}
test_verbose_and_quiet() {
  expect '-v: choices' 0 'backend marlin of vllm, layout version 1, the first that fits' '' run -v
  expect '-v: tensors' 0 'layers.0.mlp.experts.w2_bias  BF16 \[8, ' '' run -v
  expect '-v: files' 0 'packed/packed-00001.safetensors: written, ' '' run -v
  expect '-v: timings' 0 'time of each stage, all threads together: read [0-9.]+ s, ' '' run -v
  expect '-q: nothing' 0 '' '' run -q

}
run_cases
