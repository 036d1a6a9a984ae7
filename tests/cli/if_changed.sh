#!/usr/bin/env bash
# --if-changed: what counts as a change, and the cache of checksums. usage: if_changed.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

cp -r "$tiny" "$dir/tuned"
convert "$dir/tuned" "$dir/t" --backend marlin --engine vllm
again() { "$program" convert "$dir/tuned" "$dir/t" --backend marlin --engine "${1-vllm}" --if-changed; }

expect 'if changed: a copy of the source' 0 '' 'nothing has changed' again
put_last "$(ls "$dir"/tuned/*.safetensors | head -n 1)" '\001'
expect 'if changed: one byte' 0 '' 'check it with' again
expect 'which is then right' 0 'right' '' "$program" verify "$dir/t" --source "$dir/tuned"
sleep 2.1  # what changed within two seconds is not trusted to the cache
expect 'if changed: read and kept' 0 '' 'nothing' again
expect 'in the cache' 0 '[0-9a-f]{32}' '' ls "$XDG_CACHE_HOME/mxfp4-pack"
expect 'if changed: known from it' 0 '' 'nothing' again
entry=$(ls "$XDG_CACHE_HOME/mxfp4-pack/"*)
head -c 5000 /dev/zero >"$entry"
expect 'if changed: an entry that cannot be read is as good as none' 0 '' 'nothing' again
rm "$entry" && mkdir "$entry"
expect 'if changed: nor one that is no file' 0 '' 'nothing' again
rmdir "$entry"
expect 'if changed: another option' 0 '' 'check it with' again sglang
packed=$(ls "$dir/t/packed"/packed-*.safetensors | head -n 1)
convert "$dir/tuned" "$dir/t" --backend marlin --engine vllm --force
put "$packed" 100 '\377'
expect 'if changed: a header of OUT damaged' 0 '' 'not as it was written: packed/' again
expect 'which is right then' 0 'right' '' "$program" verify "$dir/t" --source "$dir/tuned"
truncate -s -1 "$packed"
expect 'if changed: a file of OUT cut' 0 '' 'not as it was written: packed/' again
echo mine >"$dir/t/notes"
expect 'if changed: a file of others in OUT' 2 '' 't: notes was not made by mxfp4-pack; move it away' again
rm "$dir/t/notes"
expect 'if changed: without it' 0 '' 'nothing' again

# one rank never takes the place of others without a word
rank() { "$program" convert "$tiny" "$dir/r" --backend marlin --engine vllm --tp-size 2 -q "$@"; }
expect 'two ranks' 0 '' '' rank
cp -r "$dir/r" "$dir/both"
for how in --force --if-changed; do
  expect "one rank in their place ($how)" 2 '' 'r: has marlin of vllm at tp 2, of which rank 0 would be lost; add another rank with --add' rank --rank 1 $how
done
expect 'they stay' 0 '' '' diff -r "$dir/both" "$dir/r"
rm -r "$dir/r"
expect 'a rank' 0 '' '' rank --rank 0
expect 'another in its place' 2 '' 'of which rank 0 would be lost' rank --rank 1 --force
expect 'the same again' 0 '' '' rank --rank 0 --force
expect 'the other added' 0 '' '' rank --rank 1 --add
expect 'both in its place' 0 '' '' rank --force
for file in config.json model.safetensors.index.json generation_config.json; do
  [ -f "$dir/t/$file" ] || continue
  convert "$dir/tuned" "$dir/t" --backend marlin --engine vllm --force
  put_last "$dir/t/$file" ' '
  cp "$dir/t/$file" "$dir/edited"
  expect "if changed: $file edited" 2 '' "t: $file was changed since it was written; move it away" again
  expect 'it stays' 0 '' '' cmp "$dir/edited" "$dir/t/$file"
  rm "$dir/t/$file"
  expect 'without it OUT is made again' 0 '' 'check it with' again
  expect 'and right again' 0 'right' '' "$program" verify "$dir/t" --source "$dir/tuned"
done
finish
