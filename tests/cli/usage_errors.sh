#!/usr/bin/env bash
# Wrong command lines: exit code 2 and a line that says what to write instead. usage: usage_errors.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

test_commands_and_words() {
  expect 'no command' 2 '' 'error: a command is missing: help, inspect, convert' "$program"
  expect 'unknown command' 2 '' "error: no command 'verfy'; did you mean verify\? See mxfp4-pack --help" "$program" verfy
  expect 'unknown option' 2 '' 'error: .*--nothing' "$program" inspect "$tiny" --nothing
  expect 'mistyped option' 2 '' 'error: no option --bakend; did you mean --backend\?' "$program" convert a b --bakend x
  expect 'no engine' 2 '' 'error: --engine vllm\|sglang is missing; see mxfp4-pack convert --help' \
    "$program" convert "$tiny" "$dir/o" --backend marlin
  expect 'all that is missing' 2 '' 'error: CKPT, OUT, --backend NAME, --engine .* are missing; see mxfp4-pack convert' \
    "$program" convert
  expect 'words too many beside what is missing' 2 '' "error: 'c', 'd' are words too many" "$program" convert a b c d
  expect 'and as JSON' 2 '"lines":\["'"'c', 'd' are words too many\",\"--backend NAME, --engine .* are missing" '' "$program" convert a b c d --json
  expect 'a word too many' 2 '' "error: 'c' is one word too many" "$program" convert a b c --backend marlin --engine vllm
}
test_names_and_values() {
  expect 'mistyped backend' 2 '' 'did you mean marlin\?' "$program" convert a b --backend marln --engine vllm
  expect 'mistyped engine' 2 '' 'did you mean vllm\?' "$program" convert a b --backend marlin --engine vlm
  expect 'mistyped model' 2 '' 'did you mean gpt-oss-20b\?' "$program" synth gpt-oss-20 "$dir/s"
}
test_ranks() {
  refused_layers() { "$program" convert "$tiny" "$dir/tp" --backend marlin --engine vllm --tp-size 4 2>&1 | wc -l; }
  expect 'said once for all layers' 0 '^1$' '' refused_layers
  expect 'and for how many' 2 '' 'would do \(3 such, the last is model.layers.2.mlp.experts\)$' \
    "$program" convert "$tiny" "$dir/tp" --backend marlin --engine vllm --tp-size 4
  expect 'sizes that split' 2 '' 'does not split into 4 ranks of whole groups of 32: the last would hold none, and the empty slice .* has no packed form; --tp-size 1, 2 would do' \
    "$program" convert "$tiny" "$dir/tp" --backend marlin --engine vllm --tp-size 4
  expect 'unknown backend' 2 '' "error: no backend 'x'; 'mxfp4-pack backends' lists them" \
    "$program" convert "$tiny" "$dir/o" --backend x --engine vllm
  expect 'usage error as JSON' 2 '^\{"error":\{"kind":"usage","lines":\[".*--engine' '' \
    "$program" convert "$tiny" "$dir/o" --backend marlin --json
  expect 'missing checkpoint' 2 '' 'nowhere: no such directory; a checkpoint directory was expected, or .* \(OWNER/NAME\)' "$program" inspect "$dir/nowhere"
  expect 'missing checkpoint as JSON' 2 '"kind":"io"' '' "$program" inspect "$dir/nowhere" --json
  expect 'an empty name' 2 '' 'error: argument 2 is empty, a value was expected; is a variable of the shell not set' "$program" verify ''
  expect 'an empty value' 2 '' 'error: argument 3 \(--source=\) is empty' "$program" verify "$tiny" --source=
}
test_engines_and_gpus() {
  expect 'a release that is not there' 2 '' 'error: --engine vllm==: no release after ==; vllm==.* for example' \
    "$program" convert "$tiny" "$dir/o" --backend marlin --engine vllm==
  expect 'a GPU that the backend is not for' 2 '' 'error: --gpu gfx942: marlin of vllm is for SM75' \
    "$program" convert "$tiny" "$dir/o" --backend marlin --engine vllm --gpu gfx942
  expect 'a GPU that no form of the backend is for' 2 '' 'error: --gpu sm90: triton-rocm of vllm is for gfx950, gfx942' \
    "$program" convert "$tiny" "$dir/o" --backend triton-rocm --engine vllm --gpu h100
  expect 'a GPU that another form is for' 2 '' 'is for gfx950, gfx942, its layout version cdna4 for gfx950' \
    "$program" convert "$tiny" "$dir/o" --backend triton-rocm --engine vllm --gpu gfx942 --layout-version cdna4
  expect "another engine's kernel" 2 '' "error: --backend b12x: a kernel of vllm's, not of sglang's; nothing to pack" \
    "$program" convert "$tiny" "$dir/o" --backend b12x --engine sglang
}
test_options_of_verify() {
  convert "$tiny" o --backend marlin --engine vllm
  for option in --tokens --seed --tolerance; do
    expect "$option without the checkpoint" 2 '' "error: $option belongs to level kernels, .*; give it with --source" \
      "$program" verify "$dir/o" $option 1
    expect "$option of another level" 2 '' "error: $option belongs to level kernels, but --level names a lower level" \
      "$program" verify "$dir/o" --source "$tiny" --level bytes $option 1
  done
  convert "$tiny" "$dir/o" --backend marlin --engine vllm
}
test_values() {
  convert "$tiny" o --backend marlin --engine vllm
  expect 'rows that the output says' 2 '' 'o: its --gate-up is none, and interleaved is asked for' \
    "$program" convert "$dir/o" "$dir/o2" --backend marlin --engine vllm --gate-up interleaved
  expect 'no number' 2 '' 'error: --threads: x is no number from 0 to 4096; see' "$program" verify "$dir/o" --threads x
  for command in 'verify o' 'synth gpt-oss-20b s'; do
    for seed in x -1; do
      expect "no number: $command" 2 '' "error: --seed: $seed is no number from 0 to 18446744073709551615; see" "$program" $command --seed=$seed
    done
  done
  expect 'no value' 2 '' 'error: --source: its value is missing, CKPT; see' "$program" verify "$dir/o" --source
  expect 'an option where a value is missing' 2 '' 'error: --tp-size: its value is missing, N; see mxfp4-pack convert' \
    "$program" convert "$tiny" "$dir/o3" --backend marlin --engine vllm --tp-size --force
  expect 'nothing is written by its name' 2 '"lines":\["--save: its value is missing, FILE' '' \
    "$program" verify "$dir/o" --source "$tiny" --save --json
  expect 'two values' 2 '' 'error: --backend: given more than once' "$program" convert a b --backend x --backend y
  expect 'a mistyped value' 2 '' "error: --level: 'byte' is none of bytes, files, kernels; did you mean bytes\?" \
    "$program" verify "$dir/o" --level byte
  expect 'an option before the command' 2 '' 'error: -v is before the command; put options after the command; see mxfp4-pack verify --help' \
    "$program" -v verify "$dir/o"
  expect 'two words too many' 2 '' "error: 'c', 'd' are words too many" "$program" convert a b c d --backend marlin --engine vllm
}
# what follows -- are names
test_names_behind_two_dashes() {
  mkdir "$dir/-odd" && cp -r "$tiny" "$dir/-odd/-in" && cd "$dir/-odd" || exit
  expect 'inspect --' 0 '60 tensors' '' "$program" inspect -- -in
  expect 'convert --' 0 '' 'mxfp4-pack verify ./--json --source ./-in' "$program" convert --backend marlin --engine vllm -- -in --json
  expect 'verify --' 0 'right at level kernels' '' "$program" verify --source=-in -- --json
  expect 'diff --' 0 'are equal' '' "$program" diff -- --json --json
  expect 'unpack --' 0 '' '^mxfp4-pack: ./-back: ' "$program" unpack -- --json -back
  expect 'synth --' 0 '' '^mxfp4-pack: ./-synth: ' "$program" synth --tiny gpt-oss-20b -- -synth
  expect 'layout --' 0 '' '' "$program" layout --backend marlin --engine vllm --model=-in -q -- -file
  expect 'merge --' 2 '' '^mxfp4-pack: error: ./-none' "$program" merge -- -none
  expect 'clean --' 0 '' '^mxfp4-pack: ./-in: nothing is left' "$program" clean -- -in
  expect 'help behind it is a name' 2 '' 'error: ./--help: no' "$program" verify -- --help
}
test_letters() {
  expect 'letters that are no options' 2 '' 'error: -q2: no option; of one letter there are -h, -q, -v and -V, and a name is written ./-q2' \
    "$program" convert "$tiny" -q2
}
run_cases
