#!/usr/bin/env bash
# Layout files: made of every backend, packed with, checked, and refused. usage: layout.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"
deepseek=$root/testdata/tiny/deepseek-v4

same_tensors() { # OUT OUT: the same packed files, canaries apart
  local f
  for f in "$1"/packed/*.safetensors; do
    case $f in *canary*) ;; *) cmp "$f" "$2/packed/${f##*/}" || return 1 ;; esac
  done
}

# Refusals: one line, and nothing is written.
refused() { # NAME MESSAGE SED-SCRIPT
  sed "$3" "$layout" >bad.json
  cmp -s "$layout" bad.json && prepare false "$1"
  expect "$1" 2 '' "$2" "$program" convert "$tiny" nothing --layout bad.json
  also . 1
  nothing nothing
}
prepare "$program" layout "$once/marlin.json" --backend marlin --engine vllm==0.33.0 --model "$tiny" -q
layout=$once/marlin.json

# The unit test "a layout file of every backend packs its bytes" has the others.
test_file_of_a_backend() {
  options=(--backend flashinfer-cutlass --engine vllm --layout-version v2 --tp-size 2)
  prepare "$program" convert "$deepseek" built-in "${options[@]}" --no-loader -q
  prepare "$program" layout made.json "${options[@]}" --model "$deepseek" -q
  expect 'is built in' 0 '^the same bytes as flashinfer-cutlass of vllm, layout version v2$' '' "$program" layout made.json
  prepare "$program" convert "$deepseek" by-file --layout made.json --tp-size 2 --no-loader -q
  expect 'the same bytes' 0 '' '' same_tensors by-file built-in
  synth deepseek-v4-flash square --tiny --hidden 256 --intermediate 256
  expect 'a lossy one is refused' 2 '' 'changes values; a layout file can only move bits' \
    "$program" layout none.json --backend flashinfer-humming --engine sglang --model square
  nothing none.json
}

# One that no built-in layout is: the words of Marlin's tiles in another order.
test_layout_that_is_not_built_in() {
  sed 's/\[4,16,0\],\[4,0,8\]/[4,0,8],[4,16,0]/; s/"marlin"/"mine"/' "$once/marlin.json" >"$dir/mine.json"
  expect 'what is built in is said' 0 'w2 scales: w2_weight_scale, marlin.scales' '' "$program" layout "$dir/mine.json"
  expect 'what is not, too' 0 'w13 codes: w13_weight, no built-in layout: 8 modes, pairs' '' \
    "$program" layout "$dir/mine.json"
  expect 'as JSON' 0 '"layout":"modes","rows":"pairs, gate first".*"same_as":null' '' "$program" layout "$dir/mine.json" --json
  expect 'one is made' 0 '' '^mxfp4-pack: .*/fresh.json: made; convert by it with: mxfp4-pack convert CKPT OUT --layout .*/fresh.json --no-loader$' \
    "$program" layout "$dir/fresh.json" --backend marlin --engine vllm --model "$tiny"
  expect 'what it was made with' 0 '^made with: mxfp4-pack ' '' "$program" convert "$tiny" "$dir/out" --layout "$dir/fresh.json" --dry-run --no-loader -q
  expect 'a file called as a built-in layout' 0 '' '' \
    "$program" convert "$tiny" "$dir/same-name" --layout "$once/marlin.json" --no-loader -q
  expect 'verify says whose layout it is' 0 'right at level .*; its layout is that of the layout file that convert was given, file-[0-9a-f]{12}$' '' \
    "$program" verify "$dir/same-name" --source "$tiny" --level bytes
  expect 'no loader reads it' 2 '' "no loader of vllm reads a layout file without a canary; learn it with 'python3 -m mxfp4_pack.learn'" \
    "$program" convert "$tiny" "$dir/out" --layout "$dir/mine.json"
  expect 'it is written for another' 0 '' 'packed tensors for vllm mine' "$program" convert "$tiny" "$dir/out" --layout "$dir/mine.json" --no-loader
  python3 -c 'import json, sys; d = json.load(sys.stdin); del d["made_with"]; print(json.dumps(d))' \
    <"$dir/mine.json" >"$dir/by-hand.json"
  by_hand() { "$program" convert "$tiny" "$dir/by-hand" --layout "$dir/by-hand.json" --no-loader 2>&1 >/dev/null | grep 'fits *$'; }
  expect 'one that says of nothing that it fits' 1 '' '' by_hand
  cp "$dir/mine.json" "$dir/kept.json"
  rm "$dir/mine.json" # OUT is complete in itself
  expect 'verify' 0 'right at level bytes' '' "$program" verify "$dir/out" --source "$tiny"
  expect 'level kernels is refused' 2 '' 'mine of vllm|level bytes' "$program" verify "$dir/out" --source "$tiny" --level kernels
  expect 'unpack' 0 '' '60 tensors, [0-9.]+ kB, each with' "$program" unpack "$dir/out" "$dir/again"
  expect 'the checkpoint again' 0 '' '' diff -r "$tiny" "$dir/again"
  convert "$tiny" "$dir/marlin" --backend marlin --engine vllm
  expect 'diff' 1 'w13_weight' '' "$program" diff "$dir/out" "$dir/marlin"
  expect 'another packed form' 0 '' '' "$program" convert "$dir/out" "$dir/marlin-again" --backend marlin --engine vllm -q
  expect 'has its bytes' 0 '' '' same_tensors "$dir/marlin-again" "$dir/marlin"
  expect 'it is added to an output' 0 '' 'beside 1 earlier set' "$program" convert "$tiny" "$dir/marlin" --add --layout "$dir/kept.json" --no-loader
  expect 'both sets are right' 0 'mine of vllm: right at level bytes' '' "$program" verify "$dir/marlin" --source "$tiny"
  expect 'once is enough' 0 '' 'unchanged' \
    "$program" convert "$tiny" "$dir/out" --layout "$dir/kept.json" --no-loader
  put_last "$(ls "$dir"/out/packed/packed-*.safetensors)" '\125'
  expect 'damage is seen' 1 'wrong: 2 problems at level bytes' '' "$program" verify "$dir/out"
}
# The bias of w2 is added once: on ranks above 0 it is zero, whatever pads rows.
test_bias_of_w2_beside_pads() {
  whole=$dir/whole
  prepare "$program" synth gpt-oss-20b "$whole" --tiny --hidden 256 --intermediate 256 -q
  with_pads() { # CKPT FILE: Marlin's layout with pads of other bytes
    prepare "$program" layout "$dir/zeros.json" --backend marlin --engine vllm --model "$1" --tp-size 2 -q
    sed 's/"pad":{[^}]*}/"pad":{"row":17,"column":34,"storage":51}/' "$dir/zeros.json" >"$2"
    rm "$dir/zeros.json"
  }
  with_pads "$whole" "$dir/whole.json"
  prepare "$program" convert "$whole" "$dir/zeros" --backend marlin --engine vllm --tp-size 2 -q
  expect 'pads of other bytes, two ranks' 0 '' '' "$program" convert "$whole" "$dir/pads" --layout "$dir/whole.json" --tp-size 2 --no-loader -q
  differences() { "$program" diff "$dir/zeros" "$dir/pads" | grep -c "$1"; }
  expect 'its biases are those of zeros' 1 '^0$' '' differences w2_bias
  with_pads "$tiny" "$dir/padded.json"
  expect 'pad rows that are not zero beside a bias that is' 2 '' "pad rows of w2's bias that are not zero" \
    "$program" convert "$tiny" nothing --layout "$dir/padded.json" --tp-size 2
}
test_refusals() {
  refused 'a flipped entry' 'tensors\[0\] \([a-z0-9_]+\).modes: modes store some bits twice, and others never' 's/\[8,1,0\]/[8,3,0]/'
  refused 'a lost source bit' 'tensors\[0\] \([a-z0-9_]+\).modes: modes have 262144 bits, the storage 524288' 's/\[2,8,0\],//'
  refused 'a step too far' 'tensors\[0\] \([a-z0-9_]+\).modes: a mode of 16 steps leaves the storage' 's/\[16,0,64\]/[16,0,128]/'
  refused 'a negative step' 'modes\[1\]\[2\]: -32, 0 to 8388608 was expected' 's/\[2,0,32\]/[2,0,-32]/'
  refused 'no bits' 'modes\[1\]: \[count, rows, bits\] or a list of \[rows, bits\] was expected' 's/\[2,0,32\]/[]/'
  refused 'a shape of other bytes' 'tensors\[0\] \([a-z0-9_]+\).shape: I32 \[16, 1023\] is not 65536 bytes' 's/\[16,1024\]/[16,1023]/'
  refused 'pads that are none' 'padded.hidden: 32, a multiple of 32 from 96 on was expected' 's/"padded":.*}/"padded": {"hidden":32,"intermediate":256}/'
  refused 'rows of w2' 'w2_weight\).rows: w2.s are always in order; leave them out' \
    '/"role":"w2","part":"codes"/s//"rows":{"block":0,"first":"gate"},"role":"w2","part":"codes"/'
  refused 'sizes that are none' 'size: no object' 's/"size": {[^}]*}/"size": null/'
  refused 'no role' 'tensors\[0\] \([a-z0-9_]+\).role: "w12", one of w13, w2 was expected' 's/"w13","part":"codes"/"w12","part":"codes"/'
  refused 'a part twice' 'tensors\[1\] \([a-z0-9_]+\): w13 codes a second time' 's/"scales"/"codes"/'
  refused 'a name with a quote' 'name: a word of letters, digits and' 's/"name": "marlin"/"name": "mar\\"lin"/'
  refused 'a name that is a folder' 'engine: a word of letters' 's/"engine": "vllm"/"engine": ".."/'
  refused 'two tensors of a name' "tensors\[3\] \([a-z0-9_]+\).name: 'w13_weight' a second time" 's/"w2_weight"/"w13_weight"/'
  refused 'a newer version' 'version 2, this program knows 1; use a newer mxfp4-pack' 's/"mxfp4_pack_layout": 1/"mxfp4_pack_layout": 2/'
  refused 'a view beyond the tensor' 'tensors\[0\] \([a-z0-9_]+\).view: reaches beyond the 16384 elements' \
    '0,/"torch_dtype":"int32"/s//"torch_dtype":"int32","view":{"torch_dtype":"int32","shape":[16,1024],"strides":[2048,1]}/'
  refused 'a torch_dtype of another size' 'tensors\[0\] \([a-z0-9_]+\).torch_dtype: int64 has 64 bits, I32 has 32' \
    '0,/"torch_dtype":"int32"/s//"torch_dtype":"int64"/'
  refused 'a torch_dtype that is none' 'tensors\[0\] \([a-z0-9_]+\).torch_dtype: int31 is no dtype of torch' '0,/"torch_dtype":"int32"/s//"torch_dtype":"int31"/'
  refused 'a canary of other tensors' "canary: no 'w13_weight'" 's/^"tensors"/"canary": {"w12_weight": ""},\n&/'
  refused 'a canary that is none' 'canary.w13_weight: the layouts pack the canary to [0-9a-f]{12}.., the engine packed it to x..' \
    's/^"tensors"/"canary": {"w13_weight": "x"},\n&/'
  refused 'no JSON' 'bad.json: invalid JSON' 's/^}$/]/'
}
test_canary() {
  canary=$root/testdata/fuzz/layout/canary
  expect 'a canary of what Marlin makes' 0 'the same bytes as marlin of vllm' '' "$program" layout "$canary"
  layout=$canary
  refused 'a flipped entry that is a bijection too' 'canary.w13_weight: the layouts pack the canary to ' '0,/\[4, 16, 0\], \[4, 0, 8\]/s//[4, 0, 8], [4, 16, 0]/'
}
test_wrong_uses() {
  sed 's/"hidden":96,/"hidden":64,/' "$once/marlin.json" >"$dir/bad.json"
  expect 'another size' 2 '' 'the layout file is for hidden 64 and intermediate 160 on a rank, these are 96 and 160' \
    "$program" convert "$tiny" nothing --layout bad.json
  expect 'no biases in the checkpoint' 2 '' 'the layout file is for|' "$program" convert "$deepseek" nothing --layout "$once/marlin.json"
  nothing nothing
  expect 'no file' 2 '' 'none.json: ' "$program" convert "$tiny" nothing --layout "$dir/none.json"
  expect 'a file and a backend' 2 '' 'excludes' "$program" convert "$tiny" nothing --layout "$once/marlin.json" --backend marlin
  expect "the environment's backend is not for a file" 0 '' '' env MXFP4_PACK_BACKEND=auto MXFP4_PACK_ENGINE=sglang \
    "$program" convert "$tiny" "$dir/env" --layout "$once/marlin.json" --no-loader -q
  expect 'a choice among backends' 2 '' 'a file is one layout' \
    "$program" convert "$tiny" nothing --layout "$once/marlin.json" --gpu h100
}
test_rows_in_halves() {
  prepare "$program" layout "$dir/halves.json" --backend marlin --engine sglang --model "$tiny" -q
  prepare "$program" convert "$tiny" "$dir/halves" --layout "$dir/halves.json" --no-loader -q
  expect 'rows in halves are computed so' 0 'right at level kernels' '' "$program" verify "$dir/halves" --source "$tiny"
}
test_ranks_that_do_not_divide() {
  expect 'ranks that do not divide' 2 '' 'does not split into 7 ranks' \
    "$program" layout "$dir/ranks.json" --backend marlin --engine vllm --model "$deepseek" --tp-size 7
  nothing ranks.json
  expect 'an existing file stays' 2 '' 'marlin.json: exists; choose the name of a new file' \
    "$program" layout "$once/marlin.json" --backend marlin --engine vllm --model "$tiny"
}
test_example_of_the_manual() {
  sed -n '/^{"mxfp4_pack_layout": 1, "name": "plain"/,/^]}/p' "$root/man/mxfp4-pack-layout.5" >"$dir/example.json"
  expect 'the example of the manual' 0 'plain of none' '' "$program" layout "$dir/example.json"
  sed 's/"block": 0/"block": 32/' "$dir/example.json" >"$dir/one-block.json"
  synth deepseek-v4-flash "$dir/small" --tiny --hidden 64 --intermediate 32
  convert "$dir/small" "$dir/one-block" --layout "$dir/one-block.json"
  expect 'a block of all rows is halves' 0 'right at levels? .*kernels' '' "$program" verify "$dir/one-block" --source "$dir/small"
}
run_cases
