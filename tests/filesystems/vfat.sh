#!/usr/bin/env bash
# What vfat cannot hold. usage: vfat.sh MXFP4-PACK SOURCE-DIR FOLDER
. "$(dirname "$0")/../cli/lib.sh"
place=$3
on() { "$program" convert "$dir/$1" "$place/out" --backend marlin --engine vllm; }
is_tidy() { [ -z "$(ls -A "$place")" ] || { ls -A "$place" && return 1; }; }

prepare cp -r "$tiny" "$dir/large"
prepare "$(dirname "$0")/add_shard.py" "$dir/large" $((5 << 30))
expect 'a file over 4 GiB' 2 '' 'File too large' on large
expect 'a file over 4 GiB: nothing stays' 0 '' '' is_tidy
for name in 'a:b.txt' 'what?.txt' 'ends in a dot.'; do
  rm -rf "$dir/names" && cp -r "$tiny" "$dir/names" && echo text >"$dir/names/$name"
  expect "$name" 2 '' "$name" on names
done
rm -rf "$dir/names" && cp -r "$tiny" "$dir/names" && echo text >"$dir/names/readme.md"
expect 'names that differ in case' 2 '' 'readme.md' on names
finish
