#!/usr/bin/env bash
# Wrong command lines: exit code 2 and a line that says what to write instead. usage: usage_errors.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

expect 'no command' 2 '' 'error: .*subcommand' "$program"
expect 'unknown option' 2 '' 'error: .*--nothing' "$program" inspect "$tiny" --nothing
expect 'no engine' 2 '' 'error: --engine is required' "$program" convert "$tiny" "$dir/o" --backend marlin
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
