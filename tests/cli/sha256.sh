#!/usr/bin/env bash
# --sha256: SHA256SUMS, as sha256sum -c takes it. usage: sha256.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

sums() { "$program" convert "$tiny" "$dir/sums" --backend marlin --engine vllm -q "$@"; }

test_sums() {
  expect 'convert with SHA-256' 0 '' '' sums --sha256
  expect 'sha256sum accepts it' 0 '' '' sh -c "cd '$dir/sums' && sha256sum -c --quiet --strict SHA256SUMS"
  expect 'it names every other file' 0 '' '' \
    bash -c "cd '$dir/sums' && find . -type f ! -name SHA256SUMS | sed 's,^./,,' | LC_ALL=C sort | cmp - <(cut -c67- SHA256SUMS)"
  expect 'verify with SHA-256' 0 'right' '' "$program" verify "$dir/sums"
  mv "$dir/sums/SHA256SUMS" "$dir/kept"
  expect 'verify finds that it is missing' 1 'SHA256SUMS: missing' '' "$program" verify "$dir/sums"
  mv "$dir/kept" "$dir/sums/SHA256SUMS"
  shard=packed/packed-00001.safetensors
  cp "$dir/sums/$shard" "$dir/kept"
  put "$dir/sums/$shard" 4096 '\377'
  expect 'a wrong byte: its file' 1 "$shard: does not have the checksum in SHA256SUMS" '' "$program" verify "$dir/sums"
  also "$shard: .*w13_weight: does not have the checksum in mxfp4-pack.json"
  mv "$dir/kept" "$dir/sums/$shard"
  sed '1s/  .*/  other/' "$dir/sums/SHA256SUMS" | head -n 1 >>"$dir/sums/SHA256SUMS"
  expect 'a line too much' 1 "SHA256SUMS: '[0-9a-f]+  other' matches no file here" '' "$program" verify "$dir/sums"
  sed -i '$d; 1s/^./x/' "$dir/sums/SHA256SUMS"
  expect 'verify with a wrong SHA-256' 1 'does not have the checksum in SHA256SUMS' '' "$program" verify "$dir/sums"
}
# Files that others keep in OUT do not belong to the output, whatever their names are.
test_files_of_others() {
  prepare sums --sha256
  mkdir -p "$dir/sums/.cache/huggingface"
  echo etag >"$dir/sums/.cache/huggingface/a
  00000000000000000000000000000000000000000000000000000000000000000  config.json"
  ln -s /etc/passwd "$dir/sums/.cache/link"
  expect 'a set is added' 0 '' '' \
    "$program" convert "$tiny" "$dir/sums" --backend marlin --engine sglang --add -q
  expect 'SHA256SUMS has the files of OUT alone' 1 '^0$' '' grep -c 'cache\|passwd\|0000000000' "$dir/sums/SHA256SUMS"
  expect 'sha256sum accepts it' 0 '' '' sh -c "cd '$dir/sums' && sha256sum -c --quiet --strict SHA256SUMS"
  expect 'and verify' 0 'right' '' "$program" verify "$dir/sums"
  rm -rf "$dir/sums/.cache" "$dir/sums/SHA256SUMS"
  mkfifo "$dir/sums/SHA256SUMS"
  expect 'a FIFO is refused at once' 2 '' 'SHA256SUMS is not as mxfp4-pack wrote it; move it away first' \
    timeout 20 "$program" convert "$tiny" "$dir/sums" --backend triton-hopper --engine vllm --add -q
  expect 'and nothing was begun' 0 '' '' find "$dir" -maxdepth 1 -name '.*mxfp4*'
  rm "$dir/sums/SHA256SUMS"
  expect 'replaced with SHA-256' 0 '' '' sums --force
}
run_cases
