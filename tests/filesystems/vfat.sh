#!/usr/bin/env bash
# What vfat cannot hold is refused, or done right. usage: vfat.sh MXFP4-PACK SOURCE-DIR FOLDER
. "$(dirname "$0")/../cli/lib.sh"
place=$3
on() { "$program" convert "$dir/$1" "$place/out" --backend marlin --engine vllm; }
is_tidy() { [ -z "$(ls -A "$place")" ] || { ls -A "$place" && return 1; }; }
# refused_or_right NAME: a companion of that name
refused_or_right() {
  rm -rf "$place/out" "$place"/.out* "$dir/names" && cp -r "$tiny" "$dir/names" && echo text >"$dir/names/$1" || return 1
  on names 2>"$dir/said.txt"
  local code=$?
  cat "$dir/said.txt"
  [ $code = 2 ] && grep -qiF "$1" "$dir/said.txt" && return
  [ $code = 0 ] && "$program" verify "$place/out" --source "$dir/names" --level bytes
}

prepare cp -r "$tiny" "$dir/large"
prepare "$(dirname "$0")/add_shard.py" "$dir/large" $((5 << 30))
expect 'a file over 4 GiB' 2 '' 'File too large' on large
expect 'a file over 4 GiB: nothing stays' 0 '' '' is_tidy
for name in 'a:b.txt' 'what?.txt' 'ends in a dot.' 'readme.md'; do
  expect "a companion called '$name'" 0 '.' '' refused_or_right "$name"
done
finish
