#!/usr/bin/env bash
# The same conversion again: what counts as a change, and the cache of checksums. usage: unchanged.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

cp -r "$tiny" "$dir/tuned"
as=(--backend marlin --engine vllm)
convert "$dir/tuned" "$dir/t" "${as[@]}"
again() { "$program" convert "$dir/tuned" "$dir/t" "${as[@]}" "$@"; }
refused() { echo "t: exists and holds marlin of vllm, but $1; --force replaces it\$"; }

sums() { find "$dir/t" -type f -exec sha256sum {} + | sort; }
sums >"$dir/before.txt"
expect 'the same' 0 '' 't: unchanged$' again
expect 'as JSON' 0 '"unchanged":true' '' again --json -q
expect 'is not written again' 0 '' '' diff "$dir/before.txt" <(sums)
expect '--force writes it again' 0 '' 'check it with' again --force
expect 'to the same bytes' 0 '' '' diff "$dir/before.txt" <(sums)
put_last "$(ls "$dir"/tuned/*.safetensors | head -n 1)" '\001'
expect 'one byte' 2 '' "$(refused "the checkpoint's tensors have other contents")" again
expect 'of an OUT that stays' 0 '' '' diff "$dir/before.txt" <(sums)
expect 'replaced' 0 '' 'check it with' again --force
expect 'which is then right' 0 'right' '' "$program" verify "$dir/t" --source "$dir/tuned"
sleep 2.1  # what changed within two seconds is not trusted to the cache
expect 'read and kept' 0 '' 'unchanged' again
expect 'in the cache' 0 '[0-9a-f]{32}' '' ls "$XDG_CACHE_HOME/mxfp4-pack"
expect 'known from it' 0 '' 'unchanged' again
entry=$(ls -t "$XDG_CACHE_HOME/mxfp4-pack/"* | head -n 1)
head -c 5000 /dev/zero >"$entry"
expect 'an entry that cannot be read is as good as none' 0 '' 'unchanged' again
rm "$entry" && mkdir "$entry"
expect 'nor one that is no file' 0 '' 'unchanged' again
rmdir "$entry"
expect 'another option' 2 '' "$(refused 'its --gate-up is none, and interleaved is asked for')" again --gate-up interleaved
expect 'another release that reads the same layout' 0 '' 't: unchanged$' \
  "$program" convert "$dir/tuned" "$dir/t" --backend marlin --engine vllm==0.33.0
expect 'another engine' 2 '' '--add adds this set' "$program" convert "$dir/tuned" "$dir/t" --backend marlin --engine sglang
echo mine >"$dir/tuned/NOTES.md"
expect 'a companion that came' 2 '' "$(refused 'NOTES.md is new in the checkpoint')" again
rm "$dir/tuned/NOTES.md"
cp "$dir/tuned/config.json" "$dir/config.json"
echo >>"$dir/tuned/config.json"
expect 'another config.json' 2 '' "$(refused "the checkpoint's config.json differs")" again
mv "$dir/config.json" "$dir/tuned/config.json"
packed=$(ls "$dir/t/packed"/packed-*.safetensors | head -n 1)
put "$packed" 100 '\377'
expect 'a header of OUT damaged' 2 '' 'but it is not as it was written: packed/.*; --force replaces it' again
expect 'replaced, too' 0 '' 'check it with' again --force
for file in "$packed" "$dir/t/rest-00001.safetensors"; do
  put_last "$file" '\001'
  expect 'a byte of a tensor of OUT damaged' 2 '' 'but .*safetensors: .* does not have its checksum; --force replaces it' again
  expect 'replaced with a whole one' 0 '' 'check it with' again --force
done
truncate -s -1 "$packed"
expect 'a file of OUT cut' 2 '' 'but it is not as it was written: packed/.*; --force replaces it' again
expect 'made again' 0 '' 'check it with' again --force
echo mine >"$dir/t/notes"
expect 'a file of others in OUT' 2 '' 'move notes away, then --force replaces it' again
expect 'nor does --force replace it' 2 '' 't: notes was not made by mxfp4-pack; move it away' again --force
rm "$dir/t/notes"
expect 'without it' 0 '' 'unchanged' again

for file in config.json model.safetensors.index.json generation_config.json; do
  [ -f "$dir/t/$file" ] || continue
  convert "$dir/tuned" "$dir/t" --backend marlin --engine vllm --force
  put_last "$dir/t/$file" ' '
  cp "$dir/t/$file" "$dir/edited"
  expect "$file edited" 2 '' "but it is not as it was written: .*$file.*; move $file away, then --force replaces it" again
  expect 'is not replaced' 2 '' "t: $file was changed since it was written; move it away" again --force
  expect 'it stays' 0 '' '' cmp "$dir/edited" "$dir/t/$file"
  rm "$dir/t/$file"
  expect 'without it OUT is made again' 0 '' 'check it with' again --force
  expect 'and right again' 0 'right' '' "$program" verify "$dir/t" --source "$dir/tuned"
done
finish
