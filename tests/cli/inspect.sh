#!/usr/bin/env bash
# inspect, also of a checkpoint whose shard is cut short. usage: inspect.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

expect 'inspect' 0 'layers 0-2: 3 experts, hidden 96, intermediate 160, bias' '' "$program" inspect "$tiny"
expect 'inspect as JSON' 0 '"family":"gpt-oss".*"problems":\[\]' '' "$program" inspect "$tiny" --json
cp -r "$tiny" "$dir/cut"
truncate -s -1000 "$dir/cut/model-00000-of-00001.safetensors"
expect 'inspect of a truncated shard' 2 'cut: not recognised \(gpt_oss\), 34 tensors' '213774 present' \
  "$program" inspect "$dir/cut"
expect 'nothing is said to be converted then' 2 '"convert":null.*"pass_through":null' '' "$program" inspect "$dir/cut" --json
finish
