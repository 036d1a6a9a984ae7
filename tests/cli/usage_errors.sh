#!/usr/bin/env bash
# Wrong command lines: exit code 2 and a line that says what to write instead. usage: usage_errors.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

expect 'no command' 2 '' 'error: a command is missing: help, inspect, convert' "$program"
expect 'unknown command' 2 '' "error: no command 'verfy'; did you mean verify\? See mxfp4-pack --help" "$program" verfy
expect 'unknown option' 2 '' 'error: .*--nothing' "$program" inspect "$tiny" --nothing
expect 'mistyped option' 2 '' 'error: no option --bakend; did you mean --backend\?' "$program" convert a b --bakend x
expect 'no engine' 2 '' 'error: --engine vllm\|sglang is missing; see mxfp4-pack convert --help' \
  "$program" convert "$tiny" "$dir/o" --backend marlin
expect 'all that is missing' 2 '' 'error: CKPT, OUT, --backend NAME, --engine .* are missing; see mxfp4-pack convert' \
  "$program" convert
expect 'a word too many' 2 '' "error: 'c' is one word too many" "$program" convert a b c --backend marlin --engine vllm
expect 'mistyped backend' 2 '' 'did you mean marlin\?' "$program" convert a b --backend marln --engine vllm
expect 'mistyped engine' 2 '' 'did you mean vllm\?' "$program" convert a b --backend marlin --engine vlm
expect 'mistyped model' 2 '' 'did you mean gpt-oss-20b\?' "$program" synth gpt-oss-20 "$dir/s"
expect 'sizes that split' 2 '' 'does not split into 4 ranks of whole groups of 32; --tp-size 1, 2, 3, 5 would do' \
  "$program" convert "$tiny" "$dir/tp" --backend marlin --engine vllm --tp-size 4
expect 'unknown backend' 2 '' "error: no backend 'x'; 'mxfp4-pack backends' lists them" \
  "$program" convert "$tiny" "$dir/o" --backend x --engine vllm
expect 'usage error as JSON' 2 '^\{"error":\{"kind":"usage","lines":\[".*--engine' '' \
  "$program" convert "$tiny" "$dir/o" --backend marlin --json
expect 'missing checkpoint' 2 '' 'error: .*nowhere: cannot open: No such file' "$program" inspect "$dir/nowhere"
expect 'missing checkpoint as JSON' 2 '"kind":"io"' '' "$program" inspect "$dir/nowhere" --json
expect 'a rank that is not there' 2 '' 'error: --rank 2 is not below --tp-size 2' \
  "$program" convert "$tiny" "$dir/tp" --backend marlin --engine vllm --tp-size 2 --rank 2
expect 'an empty name' 2 '' 'error: argument 2 is empty, a value was expected; is a variable of the shell not set' "$program" verify ''
expect 'an empty value' 2 '' 'error: argument 3 \(--source=\) is empty' "$program" verify "$tiny" --source=
expect 'letters that are no options' 2 '' 'error: -q2: no option; of one letter there are -h, -q, -v and -V, and a name is written ./-q2' \
  "$program" convert "$tiny" -q2
finish
