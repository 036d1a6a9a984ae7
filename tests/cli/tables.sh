#!/usr/bin/env bash
# Tables, reports and messages on terminals of 40, 80 and 120 columns. usage: tables.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

cd "$once" || exit 1
prepare cp -r "$tiny" tiny
convert tiny o --backend marlin --engine vllm
convert tiny q --backend marlin --engine sglang
prepare "$program" layout marlin.json --backend marlin --engine vllm --model tiny -q
mkdir -p 'a/name/of some' && cp -r tiny 'a/name/of some/folder'
put q/packed/packed-00001.safetensors 4096 '\377'

test_width() {
  cp -r "$once"/{tiny,o,q,marlin.json,a} .
  for columns in 40 80 120; do
    shown() { expect "$1 fits $columns columns" 0 "$2" '' fits $columns "$program" "${@:3}"; }
    shown backends '^marlin +vllm' backends
    shown 'backends -v' '^    requires moe_backend marlin,' backends -v
    shown 'what may be loaded' '^triton-hopper ' backends --engine vllm --gpu h100 --model tiny -q
    shown 'a checkpoint' '^layers 0-2: 3 experts' inspect tiny
    shown 'an output' '^  made for  vllm ' inspect o
    shown 'a plan' '^w2 bias +3 +' convert tiny p --backend marlin --engine vllm --dry-run -q
    shown 'a plan of every tensor' '^w2 bias +3 +' convert tiny p --backend marlin --engine vllm --dry-run -v
    shown 'a verdict' 'batches right, largest' verify o --source tiny --tokens 4
    shown 'a verdict of damage' 'wrong: ' verify q
    shown 'a difference' '^[0-9]+ tensors compared' diff o q
    shown 'a layout file' '^w13 codes: ' layout marlin.json
    shown 'a version' '^CPU drivers ' --version
    shown 'what was written' '^mxfp4-pack: serve it with:' convert tiny "c$columns" --backend marlin --engine vllm --tp-size 2
    shown 'what is added' '^mxfp4-pack: check it with:' convert tiny "c$columns" --backend triton-hopper --engine vllm --add -v
    shown 'sets' '^set 1: ' inspect "c$columns"
    shown 'sets that differ' '^only in c[0-9]+: ' diff o "c$columns"
    shown 'verdicts of sets' '^triton-hopper of vllm: kernel' verify "c$columns" --source tiny --tokens 4
    shown 'a warning' 'mxfp4-pack: warning: vllm 9.9 is newer' convert tiny "f$columns" --backend marlin --engine vllm==9.9
    shown 'a choice' '^mxfp4-pack: --backend auto:' convert tiny p --backend auto --engine vllm --gpu b200 --dry-run
    shown 'a choice that is not possible' '^mxfp4-pack: error: no known GPU' convert tiny p --backend auto --engine vllm
    shown 'an error' '^mxfp4-pack: error: o: exists ' convert tiny o --backend marlin --engine sglang
    shown 'an error of many values' 'gpt-oss-20b.$' synth gpt-oss-20 s
    shown 'a name of the hub' '  hf download openai/gpt-oss-20b ' inspect openai/gpt-oss-20b
    shown 'what is unpacked' '^mxfp4-pack: u[0-9]+: 60 tensors' unpack o "u$columns"
    shown 'what is made' '^mxfp4-pack: s[0-9]+: ' synth gpt-oss-20b "s$columns" --tiny --layers 1
    shown 'a part' '^mxfp4-pack: .*part 0 of 1' convert tiny "p$columns" --backend marlin --engine vllm --part 0/1
    shown 'what is left' 'changed [0-9]+ s ago' clean .
    shown 'a merge' '^mxfp4-pack: check it with:' merge "p$columns"
  done
}
test_lines() {
  cp -r "$once"/{tiny,o,a} .
  convert tiny c40 --backend marlin --engine vllm
  expect 'a message is broken at spaces' 0 '^  0\.5\.23 on SM90 and later; the loader$' '' fits 40 \
    "$program" convert tiny c40 --backend marlin --engine sglang --add
  expect 'a command to copy is not' 0 '^  mxfp4-pack verify c40 --source .\./a/name/of some/folder.$' '' fits 40 \
    "$program" convert "./a/name/of some/folder" c40 --backend flashinfer-cutlass --engine vllm --add
  expect 'a row in several lines' 0 '^    [a-z0-9-]+ \* +SM75, SM80 and later$' '' fits 40 "$program" backends -q
  expect 'or in one' 0 '^marlin +vllm +[a-z0-9-]+ \* +SM75, SM80 and later +0\.[0-9.]+$' '' fits 80 "$program" backends -q
  expect 'off a terminal always in one' 0 '^marlin +vllm +[a-z0-9-]+ \* +SM75, SM80 and later +0\.[0-9.]+$' '' "$program" backends -q
  expect 'headings over their columns' 0 '^ROLE +TENSORS +BYTES  EACH$' '' fits 80 \
    "$program" convert tiny p --backend marlin --engine vllm --dry-run -q
  expect 'a verdict is green' 0 $'\x1b\\[32mright' '' at 80 "$program" verify o --source tiny --tokens 4
}
run_cases
