#!/usr/bin/env bash
# unpack by parts, and their merge. usage: part_unpack.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

many=$once/many single=$once/single parts=.u.mxfp4-pack/parts
synth deepseek-v4-flash "$many" --tiny --layers 4
convert "$many" "$single" --backend marlin --engine vllm --tp-size 2 --link --sha256  # of ranks and of several shards
unpack() { "$program" unpack "$single" u --part "$@"; }
merge() { "$program" merge u "$@"; }
both_parts() { prepare unpack 0/2 -q && prepare unpack 1/2 -q; }
unpacked() { prepare "$program" unpack "$single" u -q; }
# late: a part of three that another node wrote
late() {
  mkdir late
  prepare "$program" unpack "$single" late/u --part 0/3 -q
  mkdir -m 700 .u.mxfp4-pack "$parts" && cp -r late/$parts/0-of-3.* "$parts/0-of-3.x.1.1"
}
whole() {
  expect 'the checkpoint, every file of it' 0 '' '' diff -r "$many" u
  expect 'nothing is left beside it' 1 '' '' compgen -G '.u.*'
}

test_parts_and_merge() {
  expect 'a part of the checkpoint' 0 '' 'u: part 1 of 3: [0-9]+ files?, ' unpack 1/3
  expect 'once more, nothing is done' 0 '' 'part 1 of 3: .*done already' unpack 1/3
  expect 'what is missing, as an array' 1 '^0,2$' 'u: 2 of 3 parts are missing' merge
  expect 'another number of parts' 2 '' 'part 1 of 3 is one of 3, not of 4; .*; or unpack to another place, without parts' unpack 0/4
  expect 'a conversion' 2 '' 'was made from another source' "$program" convert "$many" u --backend marlin --engine vllm --part 0/3
  expect 'one more, as JSON' 0 '"part":0.*"merged":false' '' unpack 0/3 --merge --json -q
  expect 'the last, and the merge' 0 '' 'u: [0-9]+ tensors, [0-9.]+ MB, of 3 parts' unpack 2/3 --merge
  whole
}
test_after_the_merge() {
  unpacked
  expect 'merge does not know a checkpoint' 2 '' 'u: there are no parts of it, .*merge it with --source' merge
  expect 'except beside what it was unpacked from' 0 '' 'u: complete already; tensors were not compared' merge --source "$single"
  expect 'and reads it' 0 '' 'u: all is merged already' merge --source "$single" --verify
  expect 'a part that merges' 0 '"merged":true' '' unpack 0/3 --merge --json -q
  expect 'a part' 0 '' 'part 0 of 3: .*complete already; tensors were not compared' unpack 0/3
  echo >>u/config.json
  expect 'another checkpoint' 2 '' 'u: exists, and is not what its parts make' unpack 0/3
}
test_nothing_to_merge() {
  expect 'no OUT' 2 '' 'none: there are no parts of it; unpack --part' "$program" merge none --source "$single"
  expect 'an output has no such source' 2 '' 'single: exists, and is not what its parts make' "$program" merge "$single" --source "$single"
}
test_part_that_comes_late() {
  unpacked
  late
  expect 'the next merge tidies it' 0 '' 'all is merged already' merge
  whole
}
test_part_that_comes_late_beside_other_tensors() {
  unpacked
  late
  put_last "$(ls u/*.safetensors | tail -n 1)" '\125'
  expect 'a merge' 2 '' 'of [0-9]+ tensors do not have the checksum' merge
  expect 'the part stays' 0 . '' compgen -G "$parts/0-of-3.*"
}
test_wrong_byte_in_a_part() {
  both_parts
  put_last "$(find "$parts" -name '*.safetensors' | head -n 1)" '\125'
  expect 'a merge that reads finds it' 2 '' 'u: 1 of [0-9]+ tensors do not have the checksum' merge --verify
  nothing u
  expect 'the parts are to be written again' 1 '^0-1$' 'are missing' merge
  both_parts
  expect 'and merged' 0 '' 'of 2 parts' merge --verify
  whole
}
run_cases
