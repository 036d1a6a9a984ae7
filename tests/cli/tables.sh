#!/usr/bin/env bash
# Tables and reports on terminals of 40, 80 and 120 columns. usage: tables.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

cd "$dir" || exit 1
prepare cp -r "$tiny" tiny
convert tiny o --backend marlin --engine vllm
convert tiny q --backend marlin --engine sglang
prepare "$program" layout marlin.json --backend marlin --engine vllm --model tiny
put q/packed/packed-00001.safetensors 4096 '\377'
for columns in 40 80 120; do
  shown() { expect "$1 fits $columns columns" 0 "$2" '' fits $columns "$program" "${@:3}"; }
  shown backends '^marlin +vllm' backends
  shown 'backends -v' '^    requires moe_backend marlin,' backends -v
  shown 'what may be loaded' '^triton-hopper ' backends --engine vllm --gpu h100 --model tiny -q
  shown bench '^  disk +#+ ' bench --checkpoint tiny --backend auto --engine vllm --gpu h100 --repeats 1 -q
  shown 'a checkpoint' '^layers 0-2: 3 experts' inspect tiny
  shown 'an output' '^  fits      vllm ' inspect o
  shown 'a plan' '^w2 bias +3 +' convert tiny p --backend marlin --engine vllm --dry-run -q
  shown 'a plan of every tensor' '^w2 bias +3 +' convert tiny p --backend marlin --engine vllm --dry-run -v
  shown 'a verdict' 'batches right, largest' verify o --source tiny --tokens 4
  shown 'a verdict of damage' 'wrong: ' verify q
  shown 'a difference' '^[0-9]+ tensors compared' diff o q
  shown 'a layout file' '^w13 codes: ' layout marlin.json
done
expect 'a row in several lines' 0 '^    1 \* +SM75, SM80 and later$' '' fits 40 "$program" backends -q
expect 'or in one' 0 '^marlin +vllm +1 \* +SM75, SM80 and later +0\.26\.0$' '' fits 80 "$program" backends -q
expect 'off a terminal always in one' 0 '^marlin +vllm +1 \* +SM75, SM80 and later +0\.26\.0$' '' "$program" backends -q
expect 'headings over their columns' 0 '^ROLE +TENSORS +BYTES  EACH$' '' fits 80 \
  "$program" convert tiny p --backend marlin --engine vllm --dry-run -q
expect 'a verdict is green' 0 $'\x1b\\[32mright' '' at 80 "$program" verify o --source tiny --tokens 4
finish
