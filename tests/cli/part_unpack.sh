#!/usr/bin/env bash
# unpack by parts, and their merge. usage: part_unpack.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

many=$dir/many
synth deepseek-v4-flash "$many" --tiny --layers 4
convert "$many" "$dir/single" --backend marlin --engine vllm --tp-size 2 --link --sha256

# unpack by parts, of ranks and of several shards
u=$dir/u uparts=$dir/.u.mxfp4-pack/parts
unpack() { "$program" unpack "$dir/single" "$u" --part "$@"; }
merge_u() { "$program" merge "$u" "$@"; }
expect 'a part of the checkpoint' 0 '' 'u: part 1 of 3: [0-9]+ files?, ' unpack 1/3
expect 'once more, nothing is done' 0 '' 'part 1 of 3: .*done already' unpack 1/3
expect 'what is missing, as an array' 1 '^0,2$' 'u: 2 of 3 parts are missing' merge_u
expect 'another number of parts' 2 '' 'part 1 of 3 is one of 3, not of 4; .*; or unpack to another place, without parts' unpack 0/4
expect 'nor is it a conversion' 2 '' 'was made from another source' \
  "$program" convert "$many" "$u" --backend marlin --engine vllm --part 0/3
expect 'two more, and the merge, as JSON' 0 '"part":0.*"merged":false' '' unpack 0/3 --merge --json -q
cp -r "$(compgen -G "$uparts/0-of-3.*")" "$dir/late-u"
expect 'in the end' 0 '' 'u: [0-9]+ tensors, [0-9.]+ MB, of 3 parts' unpack 2/3 --merge
expect 'the checkpoint, every file of it' 0 '' '' diff -r "$many" "$u"
expect 'and nothing beside it' 1 '' '' compgen -G "$dir/.u.*"
expect 'merge does not know a checkpoint' 2 '' 'u: there are no parts of it, .*merge it with --source' merge_u
expect 'but beside what it was unpacked from' 0 '' 'u: complete already; tensors were not compared' merge_u --source "$dir/single"
expect 'and reads it' 0 '' 'u: all is merged already' merge_u --source "$dir/single" --verify
expect 'a part that merges says so again' 0 '"merged":true' '' unpack 0/3 --merge --json -q
expect 'where nothing is' 2 '' 'none: there are no parts of it; unpack --part' "$program" merge "$dir/none" --source "$dir/single"
expect 'an output has no such source' 2 '' 'single: exists, and is not what its parts make' "$program" merge "$dir/single" --source "$dir/single"
expect 'a part that is run again' 0 '' 'part 0 of 3: .*complete already; tensors were not compared' unpack 0/3
mkdir -m 700 "${uparts%/*}" "$uparts" && cp -r "$dir/late-u" "$uparts/0-of-3.x.1.1"
expect 'one that came late is tidied' 0 '' 'all is merged already' merge_u
expect 'and nothing stays beside it' 1 '' '' compgen -G "$dir/.u.*"
mkdir -m 700 "${uparts%/*}" "$uparts" && cp -r "$dir/late-u" "$uparts/0-of-3.x.1.1"
put_last "$(ls "$u"/*.safetensors | tail -n 1)" '\125'
expect 'not beside other tensors' 2 '' 'of [0-9]+ tensors do not have the checksum' merge_u
expect 'there it stays' 0 . '' compgen -G "$uparts/0-of-3.*"
rm -r "${uparts%/*}"
echo >>"$u/config.json"
expect 'nothing is written over another checkpoint' 2 '' 'u: exists, and is not what its parts make' unpack 0/3
rm -r "$u"
prepare unpack 0/2 -q && prepare unpack 1/2 -q
put_last "$(find "$uparts" -name '*.safetensors' | head -n 1)" '\125'
expect 'a wrong byte is found by a merge that reads' 2 '' 'u: 1 of [0-9]+ tensors do not have the checksum' merge_u --verify
expect 'and nothing is there' 1 '' '' test -e "$u"
expect 'the parts are to be written again' 1 '^0-1$' 'are missing' merge_u
prepare unpack 0/2 -q && prepare unpack 1/2 -q
expect 'and merged' 0 '' 'of 2 parts' merge_u --verify
expect 'to the checkpoint' 0 '' '' diff -r "$many" "$u"
finish
