#!/usr/bin/env bash
# Several sets in one output. usage: add.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

add() { "$program" convert "$tiny" "$dir/several" --add "$@"; }
expect 'nothing to add to' 2 '' 'several: no such directory; an output of' add --backend marlin --engine sglang
convert "$tiny" "$dir/several" --backend marlin --engine vllm
over() { "$program" convert "$1" "$dir/several" --backend "$2" --engine "$3"; }
expect 'another set without --add' 2 '' \
  'several: exists and holds marlin of vllm; --add adds this set; --force replaces it$' over "$tiny" marlin sglang
expect 'the same set' 0 '' 'several: unchanged$' \
  over "$tiny" marlin vllm
expect 'a set of another checkpoint' 2 '' 'several: exists and holds marlin of vllm, and this set cannot be added; choose another place' \
  over "$root/testdata/tiny/deepseek-v4" marlin sglang
expect 'add: the plan' 0 'copied: nothing; OUT has these tensors already' '' add --backend marlin --engine sglang --dry-run
expect 'add' 0 '' 'packed tensors for sglang marlin, .* beside 1 earlier set, in [0-9.]+ s' add --backend marlin --engine sglang
expect 'add as JSON' 0 '"set":2,"moe_tp_size":2,' '' \
  add --backend triton-hopper --engine vllm --tp-size 2 --json -q
expect 'add it again' 0 '' 'several: unchanged' add --backend marlin --engine sglang
cp -r "$dir/several" "$dir/with-others"
echo mine >"$dir/with-others/packed/canary-3.safetensors"
expect 'a file of others that has a name of the new set' 2 '' 'packed/canary-3.safetensors was not made by mxfp4-pack; move it away first' \
  "$program" convert "$tiny" "$dir/with-others" --backend flashinfer-cutlass --engine vllm --add
expect 'stays' 0 '^mine$' '' cat "$dir/with-others/packed/canary-3.safetensors"
expect 'add and force exclude each other' 2 '' 'excludes' add --backend marlin --engine sglang --force
expect 'nothing is linked where nothing is copied' 2 '' 'excludes' add --backend marlin --engine sglang --link
expect 'add of a sharded state' 2 '' 'a sharded state is of one set' \
  add --backend deepgemm --engine sglang --format sharded-state
expect 'add of another checkpoint' 2 '' 'deepseek-v4: not the source that .*several was made from' \
  "$program" convert "$root/testdata/tiny/deepseek-v4" "$dir/several" --add --backend deepgemm --engine vllm
expect 'how to serve one that is not the first' 0 '  serve     sglang serve .*several --moe-runner-backend marlin$' '' "$program" inspect "$dir/several"
expect 'and the first' 0 '  serve     vllm serve .*several$' '' "$program" inspect "$dir/several"
expect 'inspect lists the sets' 0 'set 2: triton-hopper of vllm at tp 2, layout version a: 36 tensors' '' \
  "$program" inspect "$dir/several"
expect 'verify of several sets' 0 'triton-hopper of vllm at tp 2: right at level' '' \
  "$program" verify "$dir/several" --source "$tiny"
expect 'unpack of several sets' 0 '' 'unpacking marlin of vllm' "$program" unpack "$dir/several" "$dir/several-again"
convert "$tiny" "$dir/q" --backend marlin --engine sglang
mkdir -p "$dir/q/mine/deep"
expect 'add keeps an empty folder' 0 '' 'mine/deep: an empty folder' \
  "$program" convert "$tiny" "$dir/q" --add --backend marlin --engine vllm
expect 'it is there' 0 '' '' test -d "$dir/q/mine/deep"
rm -r "$dir/q/mine"
expect 'diff of several sets' 1 'only in .*several: triton-hopper of vllm at tp 2' '' "$program" diff "$dir/several" "$dir/q"
finish
