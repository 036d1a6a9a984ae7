#!/usr/bin/env bash
# Several sets in one output. usage: add.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

deepseek=$root/testdata/tiny/deepseek-v4
on() { "$program" convert "$tiny" several --backend "$1" --engine "$2" "${@:3}"; }
add() { on "$@" --add; }
one_set() { prepare on marlin vllm -q; }
three_sets() { one_set && prepare add marlin sglang -q && prepare add triton-hopper vllm --tp-size 2 -q; }

test_adds() {
  expect 'nothing to add to' 2 '' 'several: no such directory; an output of' add marlin sglang
  one_set
  expect 'the plan' 0 'copied: nothing; OUT has these tensors already' '' add marlin sglang --dry-run
  expect 'a set' 0 '' 'packed tensors for sglang marlin, .* beside 1 earlier set, in [0-9.]+ s' add marlin sglang
  expect 'as JSON' 0 '"set":2,"moe_tp_size":2,' '' add triton-hopper vllm --tp-size 2 --json -q
  expect 'again' 0 '' 'several: unchanged' add marlin sglang
}
test_without_add() {
  one_set
  cp -r several before
  expect 'another set' 2 '' 'several: exists and holds marlin of vllm; --add adds this set; --force replaces it$' on marlin sglang
  expect 'the same set' 0 '' 'several: unchanged$' on marlin vllm
  expect 'a set of another checkpoint' 2 '' 'several: exists and holds marlin of vllm, and this set cannot be added; choose another place' \
    "$program" convert "$deepseek" several --backend marlin --engine sglang
  expect 'OUT stays' 0 '' '' diff -r before several
}
test_file_of_others() {
  one_set
  echo mine >several/packed/canary-1.safetensors
  expect 'a name of the new set' 2 '' 'packed/canary-1.safetensors was not made by mxfp4-pack; move it away first' add marlin sglang
  expect 'stays' 0 '^mine$' '' cat several/packed/canary-1.safetensors
}
test_refused() {
  one_set
  expect 'add and force' 2 '' 'excludes' add marlin sglang --force
  expect 'nothing is copied, so nothing is linked' 2 '' 'excludes' add marlin sglang --link
  expect 'another checkpoint' 2 '' 'deepseek-v4: not the source that .*several was made from' \
    "$program" convert "$deepseek" several --add --backend deepgemm --engine vllm
}
test_changed_small_files() {
  cp -r "$tiny" in
  from() { "$program" convert in several --backend "$1" --engine "$2" "${@:3}"; }
  prepare from marlin vllm -q
  echo '{"temperature": 9}' >in/generation_config.json
  for set in 'marlin vllm' 'marlin sglang'; do
    # shellcheck disable=SC2086
    expect "a changed file, $set" 2 '' "in: not the source that .*several was made from: the checkpoint's generation_config.json differs\$" \
      from $set --add
  done
  cp "$tiny/generation_config.json" in
  echo >>in/model.safetensors.index.json
  expect 'a changed index' 2 '' "the checkpoint's index differs$" from marlin sglang --add
}
test_other_commands() {
  three_sets
  expect 'how to serve one that is not the first' 0 '  serve     sglang serve .*several --moe-runner-backend marlin$' '' "$program" inspect several
  also '  serve     vllm serve .*several$'
  also 'set 2: triton-hopper of vllm at tp 2, layout version a: 36 tensors'
  expect 'verify' 0 'triton-hopper of vllm at tp 2: right at level' '' "$program" verify several --source "$tiny"
  expect 'unpack' 0 '' 'unpacking marlin of vllm' "$program" unpack several again
  convert "$tiny" q --backend marlin --engine sglang
  expect 'diff' 1 'only in .*several: triton-hopper of vllm at tp 2' '' "$program" diff several q
}
test_empty_folder() {
  one_set
  mkdir -p several/mine/deep
  expect 'is kept' 0 '' 'mine/deep: an empty folder' add marlin sglang
  expect 'it is there' 0 '' '' test -d several/mine/deep
}
test_added_and_changed_since() {
  three_sets
  echo mine >several/mine.txt
  expect 'the cause is named' 2 '' 'several: triton-hopper of vllm at tp 2 exists already, but .*: mine.txt: not listed in .*; choose another place$' \
    add triton-hopper vllm --tp-size 2
}
test_parts_of_another_command() {
  one_set
  prepare add triton-hopper vllm --part 0/2 -q
  clean="or discard the parts: mxfp4-pack clean several --remove\$"
  expect 'other options' 2 '' "part 0 of 2 was made with other options .*; first write and merge all parts with their own command, $clean" \
    add marlin sglang
  expect 'without --add' 2 '' "part 0 of 2 is of a command with --add; first write .*, $clean" on triton-hopper vllm --force --part 1/2
  expect 'the parts go on' 0 '' 'beside 1 earlier set' add triton-hopper vllm --part 1/2 --merge
  expect 'then the set is added' 0 '' 'beside 2 earlier sets' add marlin sglang
}
run_cases
