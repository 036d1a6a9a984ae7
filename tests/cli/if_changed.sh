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
