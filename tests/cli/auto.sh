#!/usr/bin/env bash
# --backend auto: which backend an engine would choose on a GPU. usage: auto.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

auto() { "$program" convert "$tiny" "$dir/auto" --backend auto --gpu "$1" --engine vllm --dry-run; }
expect 'auto chooses and says why' 0 'marlin' 'auto: marlin: .*only one.*runs there' auto sm89
expect 'auto for a GPU by its name' 0 'marlin' 'auto: marlin: ' auto L40S
expect 'auto for an unknown GPU' 2 '' '--gpu: h101 is not one of sm75 \(t4\), .*sm90 \(h20, h100, .*cpu; see' auto h101
expect 'auto without a known order' 2 '' 'not known; say --backend, of marlin' \
  "$program" convert "$root/testdata/tiny/deepseek-v4" "$dir/auto" --backend auto --gpu sm90 --engine sglang --dry-run
finish
