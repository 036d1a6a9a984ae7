#!/usr/bin/env bash
# inspect, also of a checkpoint whose shard is cut short. usage: inspect.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

test_checkpoint() {
  expect 'inspect' 0 'layers 0-2: 3 experts, hidden 96, intermediate 160, bias' '' "$program" inspect "$tiny"
  prepare cp -r "$tiny" "$dir/broken"
  truncate -s -5 "$dir/broken/model-00000-of-00001.safetensors"
  one_object() { "$program" inspect "$dir/broken" --json | python3 -c '
import json, sys; found = json.load(sys.stdin)
assert found["error"]["lines"] == found["problems"] and found["model_type"] == "gpt_oss", found'; }
  expect 'contents are not read' 0 '^lacks nothing that config.json promises; contents are not read, convert checks them$' '' "$program" inspect "$tiny"
  expect 'problems as JSON' 2 '"problems":\[".*"error":\{"kind":"input"' '' "$program" inspect "$dir/broken" --json
  expect 'in one object' 0 '' '' one_object
  convert "$tiny" "$dir/companion" --backend marlin --engine vllm
  echo >>"$dir/companion/LICENSE"
  expect 'a damaged companion of an output' 2 '' 'LICENSE: does not have the checksum' "$program" inspect "$dir/companion"
  expect 'inspect as JSON' 0 '"family":"gpt-oss".*"problems":\[\]' '' "$program" inspect "$tiny" --json
  expect 'inspect -q of what can be converted' 0 '' '' "$program" inspect "$tiny" -q
}
test_count_of_layers() {
  cp -r "$tiny" "$dir/float"
  sed -i 's/"num_hidden_layers": \([0-9]*\)/"num_hidden_layers": \1.0/' "$dir/float/config.json"
  expect 'a float counts' 0 '^lacks nothing' '' "$program" inspect "$dir/float"
  sed -i '/num_hidden_layers/d' "$dir/float/config.json"
  expect 'no count' 0 '^layers 0-2' 'counts no layers' "$program" inspect "$dir/float"
  also '^lacks nothing' 0
}
test_truncated_shard() {
  cp -r "$tiny" "$dir/cut"
  truncate -s -1000 "$dir/cut/model-00000-of-00001.safetensors"
  expect 'inspect of a truncated shard' 2 'cut: not recognised \(gpt_oss\), 34 tensors' '213774 present' \
    "$program" inspect "$dir/cut"
  expect 'nothing is said to be converted then' 2 '"convert":null.*"pass_through":null' '' "$program" inspect "$dir/cut" --json

  expect 'and with -q' 2 '' '213774 present' "$program" inspect "$dir/cut" -q
  prepare rm "$dir"/cut/*.safetensors
  expect 'no shard at all' 2 '0 tensors, 0 B in 0 shards$' 'model-00000-of-00001.safetensors: missing; incomplete copy\?$' \
    "$program" inspect "$dir/cut"
}
# What no loader of the release reads is served by nothing.
test_release_without_a_loader() {
  shows_serve() { "$program" inspect "$1" | grep ' serve '; }
  synth ling "$dir/ling" --layers 2 --experts 8 --hidden 256 --intermediate 128 --vocab 64
  convert "$dir/ling" "$dir/early" --backend marlin --engine vllm==0.26.0 --no-loader
  expect 'a release without a loader' 1 '' '' shows_serve "$dir/early"
  convert "$dir/ling" "$dir/late" --backend marlin --engine vllm==0.33.0
  expect 'one with a loader' 0 'serve     vllm serve' '' shows_serve "$dir/late"
}
# what would be left out is refused by both, in the same words; root may read all, so it gives that up
test_odd_files() {
  reads() { if [ "$(id -u)" = 0 ]; then setpriv --bounding-set=-dac_override,-dac_read_search -- "$@"; else "$@"; fi; }
  inspect_odd() { reads "$program" inspect "$dir/odd" >/dev/null; }
  refused() {
    expect "inspect: $1" 2 '' "$2" inspect_odd
    expect "convert: $1" 2 '' "$2" reads "$program" convert "$dir/odd" "$dir/o" --backend marlin --engine vllm
    expect "nothing is written: $1" 0 '' '' find "$dir" -maxdepth 1 -name '*mxfp4-pack*'
  }
  cp -r "$tiny" "$dir/odd"
  touch "$dir/odd/tokenizer.json"
  chmod 0 "$dir/odd/tokenizer.json"
  refused 'a companion that cannot be read' '^mxfp4-pack: error: tokenizer.json: cannot be read: Permission denied$'
  rm "$dir/odd/tokenizer.json"
  mkdir "$dir/odd/templates"
  chmod 0 "$dir/odd/templates"
  refused 'a folder that cannot be read' '^mxfp4-pack: error: templates: a folder that cannot be read: Permission denied$'
  chmod 700 "$dir/odd/templates"
  rm -r "$dir/odd"
  ln -s odd "$dir/odd"
  refused 'a link that leads to itself' '^mxfp4-pack: error: .*odd: cannot open: Too many levels of symbolic links$'
  rm "$dir/odd"
  cp -r "$tiny" "$dir/odd"
  ln -s mxfp4-pack.json "$dir/odd/mxfp4-pack.json"
  refused 'a manifest that leads to itself' '^mxfp4-pack: error: .*odd: mxfp4-pack.json: a link that leads to itself'
}
run_cases
