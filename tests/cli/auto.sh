#!/usr/bin/env bash
# --backend auto: which backend an engine would choose on a GPU. usage: auto.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"
auto() { "$program" convert "$tiny" "$dir/auto" --backend auto --gpu "$1" --engine vllm==0.33.0 --dry-run; }
synth deepseek-v4-flash "$once/square" --tiny --hidden 256 --intermediate 256
synth qwen3-30b-a3b-ct "$once/ct" --tiny --layers 2 --experts 2 --hidden 512 --intermediate 256
synth deepseek-r1-0528-quark "$once/quark" --tiny --hidden 256 --intermediate 128
deepseek() { "$program" convert "$root/testdata/tiny/deepseek-v4" "$dir/auto" --backend auto --gpu sm90 --dry-run --json "$@"; }
lossy() { "$program" convert "$once/square" "$dir/auto" --backend auto --gpu sm90 --engine vllm==0.33.0 --dry-run --json "$@"; }
ct() { "$program" convert "$once/ct" "$dir/auto" --backend auto --gpu b200 --engine vllm==0.33.0 --dry-run --json; }
quark() { "$program" convert "$once/quark" "$dir/auto" --backend auto --gpu b200 --engine vllm==0.33.0 --dry-run --json "$@"; }
unread() { "$program" convert "$root/testdata/tiny/deepseek-v4" "$dir/unread" --backend auto --engine sglang --gpu mi355x -q "$@"; }
marlin() { "$program" convert "$once/square" "$dir/auto" --backend "$1" --engine sglang --gpu sm120 --dry-run --json; }
unnamed() { "$program" convert "$once/ct" "$dir/auto" --backend auto --engine sglang --gpu h100 --dry-run --no-loader; }
cutlass() { "$program" convert "$tiny" "$dir/auto" --backend flashinfer-cutlass --dry-run --json "$@"; }

test_choice_and_reason() {
  expect 'auto chooses and says why' 0 'marlin' 'auto: marlin: vllm 0.33.0 on sm89 .*prefers marlin' auto sm89
  expect 'auto for a GPU by its name' 0 'marlin' 'auto: marlin: ' auto L40S
  expect 'auto for an unknown GPU' 2 '' '--gpu: h101 is not one of sm75 \(t4\), .*sm90 \(h20, h100, .*cpu; see' auto h101
  expect 'auto on MI300, in the form of its release' 0 'w13 scales .* U8 \[3, 8, 512\]' 'auto: aiter-triton: vllm 0.33.0 on gfx942 ' auto mi300x
}
test_choice_of_the_engine() {
  expect 'the engine itself would take another' 0 '"engine_version":"0.33.0","engine_choice":"humming-w4a8"' \
    'for the original checkpoint vllm would use humming-w4a8; for OUT the loader selects humming .[^)]*bf16 activations.$' deepseek --engine vllm==0.33.0
  expect 'before it took what is written' 0 '"engine_choice":"marlin"' 'auto: marlin' deepseek --engine vllm==0.31.0
}
test_lossy_choice() {
  expect 'a lossy choice is left to the user' 0 '"backend":"humming"' 'not humming-w4a8: lossy; choose it with --backend humming-w4a8' lossy
}
test_pads_and_newer_release() {
  expect 'one that needs pads' 0 '"backend":"humming"' 'pads would change an expert.s values' deepseek --engine vllm
  expect 'a newer release' 0 '"backend":"humming"' "vllm 0.99.0 is newer than $(newest)" deepseek --engine vllm==0.99.0
}
test_choice_that_loaders_read() {
  expect 'a loader reads the choice of the engine' 0 '"backend":"cutlass-mxfp4"' 'auto: cutlass-mxfp4' ct
  expect 'where none reads the choice, what a loader reads' 0 '"backend":"marlin"' 'not cutlass-mxfp4: no loader reads it' quark
  expect 'and the choice itself, if no loader is needed' 0 '"backend":"cutlass-mxfp4"' 'auto: cutlass-mxfp4' quark --no-loader
}
test_no_loader_reads_anything() {
  expect 'what no loader reads is refused, quietly too' 2 '' \
    'gfx950 .*: no loader reads it; use --engine vllm --backend .*; --no-loader writes it for a loader of your own$' unread
  expect 'and nothing is written' 1 '' '' test -e "$dir/unread"
  expect 'but where it is meant' 0 '' '' unread --no-loader
}
test_form_that_the_gpu_runs() {
  expect 'a named backend in the form that the GPU runs' 0 '"layout_version":"1"' '' marlin marlin
}
test_engine_without_a_kernel() {
  expect 'an engine that takes no kernel by itself' 0 'marlin' 'uses an MXFP4 kernel only if one is requested' unnamed
  expect 'where no loader reads what is written, none has it take that' 0 'marlin' \
    'for the original checkpoint sglang would use no MXFP4 kernel$' unnamed
}
test_alternatives() {
  expect 'alternatives are those that a loader reads' 0 . 'alternatives: deepgemm, marlin, triton-blackwell, flashinfer-cutlass-mxfp8$' \
    "$program" convert "$once/square" "$dir/auto" --backend auto --gpu b200 --engine vllm==0.33.0 --dry-run --json
  expect 'an engine that runs nothing there, and one that does' 2 '' 'no backend of mxfp4-pack runs there; use --engine vllm --backend marlin' \
    "$program" convert "$once/square" "$dir/auto" --backend auto --gpu a100 --engine sglang
}
test_layout_of_a_release() {
  expect 'a release chooses the layout' 0 '"layout_version":"v1"' '' cutlass --engine vllm==0.28.0
  expect 'a layout that a release does not load' 2 'vllm 0.33.0 does not load layout version v1 of flashinfer-cutlass, but v2' '' \
    cutlass --engine vllm==0.33.0 --layout-version v1
}
test_unknown_engine() {
  expect 'an engine that is not there' 2 '' 'no engine .vlm., but vllm, sglang' \
    "$program" convert "$tiny" "$dir/auto" --backend marlin --engine vlm
}
run_cases
