#!/usr/bin/env bash
# The same conversion again: what counts as a change, and the cache of checksums. usage: unchanged.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

as=(--backend marlin --engine vllm)
cp -r "$tiny" "$once/tuned"
convert "$once/tuned" "$once/t" "${as[@]}"
# tuned is the checkpoint, t its output
files() { cp -rp "$once/tuned" "$once/t" .; }
again() { "$program" convert tuned t "${as[@]}" "$@"; }
refused() { echo "t: exists and holds marlin of vllm, but $1; --force replaces it\$"; }
# replaced NAME: --force writes t again
replaced() {
  expect "$1: replaced" 0 '' 'check it with' again --force
  expect 'right' 0 'right' '' "$program" verify t --source tuned
}

test_the_same() {
  files
  sums() { find t -type f -exec sha256sum {} + -printf '%T@ %i\n' | sort; }
  sums >before
  expect 'the same' 0 '' 't: unchanged$' again
  expect 'as JSON' 0 '"unchanged":true' '' again --json -q
  expect 'another release that reads the same layout' 0 '' 't: unchanged$' "$program" convert tuned t --backend marlin --engine vllm==0.33.0
  expect 'is not written again' 0 '' '' diff before <(sums)
  expect '--force writes it again' 0 '' 'check it with' again --force
  expect 'to the same bytes' 0 '' '' diff -r "$once/t" t
}
test_other_options() {
  files
  expect '--gate-up' 2 '' "$(refused 'its --gate-up is none, and interleaved is asked for')" again --gate-up interleaved
  expect 'another engine' 2 '' '--add adds this set' "$program" convert tuned t --backend marlin --engine sglang
}
test_source_that_changed() {
  files
  echo mine >tuned/NOTES.md
  expect 'a companion that came' 2 '' "$(refused 'NOTES.md is new in the checkpoint')" again
  rm tuned/NOTES.md
  cp tuned/config.json config.json
  echo >>tuned/config.json
  expect 'another config.json' 2 '' "$(refused "the checkpoint's config.json differs")" again
  mv config.json tuned/config.json
  put_last "$(ls tuned/*.safetensors | head -n 1)" '\001'
  expect 'one byte' 2 '' "$(refused "the checkpoint's tensors have other contents")" again
  expect 'OUT stays' 0 '' '' diff -r "$once/t" t
  replaced 'one byte'
}
test_cache_of_checksums() {
  files
  put_last "$(ls tuned/*.safetensors | head -n 1)" '\001'
  again --force -q
  sleep 2.1  # what changed within two seconds is not trusted to the cache
  expect 'read and kept' 0 '' 'unchanged' again
  expect 'in the cache' 0 '[0-9a-f]{32}' '' ls "$XDG_CACHE_HOME/mxfp4-pack"
  expect 'known from it' 0 '' 'unchanged' again
  entry=$(ls -t "$XDG_CACHE_HOME/mxfp4-pack/"* | head -n 1)
  head -c 5000 /dev/zero >"$entry"
  expect 'an entry that cannot be read is as good as none' 0 '' 'unchanged' again
  rm "$entry" && mkdir "$entry"
  expect 'nor one that is no file' 0 '' 'unchanged' again
}
test_damaged_out() {
  files
  packed=$(ls t/packed/packed-*.safetensors | head -n 1)
  put "$packed" 100 '\377'
  expect 'a header' 2 '' 'but it is not as it was written: packed/.*; --force replaces it' again
  replaced 'a header'
  truncate -s -1 "$packed"
  expect 'a file that is cut' 2 '' 'but it is not as it was written: packed/.*; --force replaces it' again
  replaced 'a file that is cut'
  for file in "$packed" t/rest-00001.safetensors; do
    put_last "$file" '\001'
    expect "a byte of $file" 2 '' 'but .*safetensors: .* does not have its checksum; --force replaces it' again
    replaced "a byte of $file"
  done
}
test_file_of_others_in_out() {
  files
  echo mine >t/notes
  expect 'the same again' 2 '' 'and notes, which mxfp4-pack did not make; move that away and repeat the command$' again
  expect '--force' 2 '' 't: notes was not made by mxfp4-pack; move it away' again --force
  rm t/notes
  expect 'without it' 0 '' 'unchanged' again
}
test_edited_file_in_out() {
  for file in config.json model.safetensors.index.json generation_config.json; do
    rm -rf tuned t && files
    put_last t/$file ' '
    cp t/$file edited
    expect "$file: the same again" 2 '' "but it is not as it was written: .*$file.*; move $file away, then --force replaces it" again
    expect "$file: --force" 2 '' "t: $file was changed since it was written; move it away" again --force
    expect "$file stays" 0 '' '' cmp edited t/$file
    rm t/$file
    replaced "without $file"
  done
}
run_cases
