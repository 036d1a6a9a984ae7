#!/usr/bin/env bash
# Published hashes: what convert compares, and verify without the checkpoint. usage: published.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

# lists that are none
malformed() {
  printf "$2" >bad
  refused "$1" ckpt "^mxfp4-pack: error: bad: $3" --published bad
}
add() { "$program" convert "$1" "$2" --backend triton-hopper --engine vllm --no-loader --add -q "${@:3}"; }
proof() { "$program" verify "$1" --published "${2:-SHA256SUMS}" "${@:3}"; }
recorded() {
  python3 -c 'import json, sys
for f in json.load(open(sys.argv[1]))["source"]["published"]:
  print(f["name"], f["bytes"], f.get("sha256", ""), f.get("git_sha1", ""), f["published_by"])' "$1/mxfp4-pack.json"
}
cd "$once" || exit 1
hub() { python3 -B "$root/tests/cli/hub_files.py" "$@"; }
sums() { (cd "$1" && find . -type f ! -path './.cache/*' -printf '%P\0' | sort -z | xargs -0 sha256sum); }
convert_to() { "$program" convert "$1" "$2" --backend marlin --engine vllm --no-loader "${@:3}"; }
# refused NAME CKPT PATTERN OPTIONS..: exit code 2, one line, and nothing is there
refused() {
  expect "$1" 2 '' "$3" convert_to "$2" none -q "${@:4}"
  also . 1
  expect "$1: nothing is left" 0 '' '' find . -maxdepth 1 -name '*none*'
}
# put_bit FILE OFFSET: flips the last bit of a byte
put_bit() { python3 -c 'import sys
with open(sys.argv[1], "r+b") as f:
  f.seek(int(sys.argv[2])); b = f.read(1)[0]; f.seek(-1, 1); f.write(bytes([b ^ 1]))' "$@"; }
# copy NAME: of the checkpoint, to be changed
copy() { rm -rf "$1" && prepare cp -r ckpt "$1"; }
# change OFFSET: a copy with another bit in the shard
change() { copy changed && put_bit "changed/$shard" "$1"; }

prepare cp -r "$tiny" ckpt
shard=$(cd ckpt && ls ./*.safetensors | head -n 1)
shard=${shard#./}
sums ckpt >SHA256SUMS
hub tree ckpt >tree.json
prepare hub cache ckpt models--o--n
prepare hub local ckpt local
all=$(wc -l <SHA256SUMS)
size=$(stat -c %s "ckpt/$shard") hash=$(sha256sum "ckpt/$shard" | cut -c-64) last=$(($(stat -c %s "ckpt/$shard") - 1))
grep -v "$shard" SHA256SUMS >lacks
grep safetensors SHA256SUMS >shards
python3 -c 'import json, sys
tree = json.load(open("tree.json"))
for e in tree:
  if e["path"] == sys.argv[1]: e["lfs"]["size"] += 1
json.dump(tree, open("longer.json", "w"))' "$shard"
convert ckpt out --backend marlin --engine vllm
convert_to ckpt out-sums --published SHA256SUMS -q
# files NAME..: copies of the common ones
files() { for file; do cp -r "$once/$file" .; done; }

# convert: where hashes are found
test_where_hashes_are_found() {
  files ckpt out SHA256SUMS tree.json models--o--n local
  expect 'no hashes' 0 '' '^mxfp4-pack: none: ' convert_to ckpt none
  also published 0
  expect 'nor in the manifest' 1 '^0$' '' grep -c published none/mxfp4-pack.json
  expect 'the cache' 0 '' "as published: $all files \(cache\)" convert_to models--o--n out-cache
  expect 'a folder' 0 '' "as published: $all files \(metadata\)" convert_to local out-local
  expect 'SHA256SUMS' 0 '' "as published: $all files \(SHA256SUMS\)" convert_to ckpt out-sums --published SHA256SUMS
  expect 'the list of the hub' 0 '' "as published: $all files \(tree.json\)" convert_to ckpt out-tree --published tree.json
  expect 'a list before the cache' 0 '' "$all files \(tree.json\)" convert_to models--o--n out-list --published tree.json
  expect '--no-published' 0 '' '^mxfp4-pack: out-not: ' convert_to local out-not --no-published
  also published 0
  for out in out-cache out-local out-sums out-tree out-list; do
    expect "$out: packed bytes are the same" 0 '' '' diff -r out/packed $out/packed
    expect "$out: verify" 0 '' '' "$program" verify $out --source ckpt -q
  done
  expect 'the manifest has the shard' 0 "^$shard $size $hash  cache\$" '' recorded out-cache
  expect 'and config.json' 0 '^config.json [0-9]+  [0-9a-f]{40} metadata$' '' recorded out-local
  expect 'and the name of a list' 0 '^config.json [0-9]+ [0-9a-f]{64}  SHA256SUMS$' '' recorded out-sums
  expect 'JSON' 0 "\"published\":$all[,}]" '' convert_to ckpt out-json --published SHA256SUMS --json -q
}
# convert: files that are not as published
test_changed_byte() {
  files ckpt SHA256SUMS
  for at in $last $((size / 2)) 0; do
    [ $at -ne 0 ] || at=$((8 + $(od -An -tu8 -N8 "ckpt/$shard")))
    change $at
    is=$(sha256sum "changed/$shard" | cut -c-64)
    refused "byte $at" changed "^mxfp4-pack: error: $shard: SHA-256 is $is, $hash as published \(SHA256SUMS\); download it again" \
      --published SHA256SUMS
    refused "byte $at, --allow-incomplete" changed 'as published' --published SHA256SUMS --allow-incomplete
    expect "byte $at, not compared" 0 '' '' convert_to changed out-changed-$at -q
  done
}
test_changed_file_of_the_hub() {
  files ckpt models--o--n local
  blob=$(readlink -f models--o--n/snapshots/*/"$shard")
  put_bit "$blob" $last
  refused 'a blob of the cache' models--o--n "^mxfp4-pack: error: $shard: SHA-256 is [0-9a-f]{64}, $hash as published \(cache\)"
  expect 'a blob, --no-published' 0 '' '' convert_to models--o--n out-blob --no-published -q
  put_bit "$blob" $last
  put_bit "local/$shard" $last
  refused 'a file of a folder' local "$shard: SHA-256 is .*, $hash as published \(metadata\)"
  refused 'with one thread' local "$shard: SHA-256 is .*, $hash as published \(metadata\)" --threads 1
  put_bit "local/$shard" $last
  sed -i 's/"vocab_size"/"vocab_sizf"/' local/config.json
  refused 'an edited config.json' local "config.json: Git's SHA-1 is [0-9a-f]{40}, [0-9a-f]{40} as published \(metadata\)"
  rm -r local && prepare hub local ckpt local
}
test_file_without_metadata() {
  files local
  rm "local/.cache/huggingface/download/$shard.metadata"
  expect 'a file without metadata' 0 '' "without a published hash: $shard" convert_to local out-without
  echo x >"local/.cache/huggingface/download/$shard.metadata"
  expect 'metadata of nonsense' 0 '' "without a published hash: $shard" convert_to local out-nonsense
}
test_another_size() {
  files ckpt longer.json lacks shards tree.json
  refused 'another size, before anything is read' ckpt "$shard: $size bytes, $((size + 1)) as published \(longer.json\)" \
    --published longer.json
  copy changed && echo >>changed/generation_config.json
  refused 'of a small file' changed 'generation_config.json: [0-9]+ bytes, [0-9]+ as published \(tree.json\)' --published tree.json
  expect 'a dry run compares sizes' 2 '' "$shard: $size bytes" convert_to ckpt none --published longer.json --dry-run -q
  refused 'a list without the shard' ckpt "$shard: not in lacks; give a list with all shards$" --published lacks
  expect 'a list without other files' 0 '' 'without a published hash: .*config.json' convert_to ckpt out-shards --published shards
}
test_lists_of_another_form() {
  files ckpt tree.json SHA256SUMS
  python3 -c 'import json
tree = json.load(open("tree.json"))
for e in tree:
  if "lfs" in e: e["lfs"]["oid"] = "sha256:" + e["lfs"]["oid"].upper()
json.dump(tree, open("prefixed.json", "w"))'
  expect 'sha256: in front' 0 '' 'as published' convert_to ckpt out-prefixed --published prefixed.json
  sed 's,  ,  ./,; s,$,\r,' SHA256SUMS >windows
  expect 'lines of Windows, and ./ in front' 0 '' 'as published' convert_to ckpt out-windows --published windows
}
# parts compare nothing, and say so
test_parts() {
  files ckpt SHA256SUMS
  prepare hub local ckpt with-hashes
  for part in 0 1; do
    expect "part $part" 0 '' "parts compare no published hashes; compare them with 'mxfp4-pack verify merged --published FILE'\$" \
      convert_to with-hashes merged --part $part/2
  done
  expect 'merge' 0 '' 'parts compare no published hashes; ' "$program" merge merged
  expect 'the manifest has it' 0 '^ *"published": \[\]' '' cat merged/mxfp4-pack.json
  expect 'and no file' 0 '' '' recorded merged
  expect 'verify, as merge says' 0 'as published in SHA256SUMS' '' "$program" verify merged --published SHA256SUMS
  expect 'another form keeps it' 0 '' '' "$program" convert merged merged-again --backend triton-hopper --engine vllm --no-loader -q
  expect 'in its manifest' 0 '^ *"published": \[\]' '' cat merged-again/mxfp4-pack.json
  "$program" convert ckpt begun --backend marlin --engine vllm --no-loader --part 0/2 -q
  for _ in 1 2; do
    expect 'parts, --published' 2 '' '^mxfp4-pack: error: --published: parts of begun are there, .*--no-published' \
      convert_to ckpt begun --published SHA256SUMS
    also . 1
  done
  expect 'parts, --no-published' 0 '' '' convert_to with-hashes merged-not --part 0/1 --no-published -q
  expect 'parts without hashes' 0 '' '' bash -c '"$0" convert ckpt plain --backend marlin --engine vllm --no-loader --part 0/1 -q && "$0" merge plain -q' "$program"
  expect 'the manifest has nothing of them' 1 '' '' grep '"published"' plain/mxfp4-pack.json
}
test_malformed_lists() {
  files ckpt
  malformed 'an empty list' '' 'names no file'
  malformed 'an empty tree' '[]' 'names no file'
  malformed 'text' 'hello\n' "line 1: 'hello'; 64 hexadecimal digits"
  malformed 'a second line' "$hash  a\n${hash%?}  b\n" "line 2: '"
  malformed 'digits that are none' "${hash%?}g  a\n" "line 1: '"
  malformed 'no name' "$hash  \n" "line 1: '"
  malformed 'one space' "$hash a\n" "line 1: '"
  malformed 'a file twice' "$hash  a\n$hash  a\n" 'names a twice'
  malformed 'no JSON' '[{' 'invalid JSON'
  malformed 'an object' '{"path": "a"}' 'no list'
  malformed 'no path' "[{\"oid\": \"${hash:24}\", \"size\": 1}]" "\[0\]: no 'path'"
  malformed 'no oid' '[{"path": "a", "size": 1}]' "\[0\]: no 'oid'"
  malformed 'no size' "[{\"path\": \"a\", \"oid\": \"${hash:24}\"}]" "\[0\]: no 'size'"
  malformed 'an oid of text' '[{"path": "a", "size": 1, "oid": "main"}]' "\[0\].oid: 'main' is no hash of 40"
  malformed 'the oid of an LFS pointer' "[{\"path\": \"a\", \"size\": 1, \"lfs\": {\"oid\": \"${hash:24}\", \"size\": 1}}]" \
    "\[0\].lfs.oid: '.*' is no hash of 64"
  rm bad
}
test_refused_options() {
  files ckpt out tree.json local
  refused 'no such list' ckpt '^mxfp4-pack: error: bad: cannot open: No such file' --published bad
  expect 'both options' 2 '' 'excludes --no-published' convert_to ckpt none --published tree.json --no-published
  expect 'a part' 2 '' '--published excludes --part' convert_to ckpt none --published tree.json --part 0/2
  expect 'an output' 2 '' "^mxfp4-pack: error: --published: out is packed; use 'mxfp4-pack verify out --published tree.json'" \
    convert_to out none --published tree.json
  expect 'a part of a folder compares nothing' 0 '' '' convert_to local parts --part 0/1 --merge -q
}
# other conversions
test_other_conversions() {
  files ckpt out-sums SHA256SUMS
  convert ckpt out-not --backend marlin --engine vllm
  expect 'the same again' 0 '' 'out-sums: unchanged' convert_to ckpt out-sums --published SHA256SUMS
  expect 'the same, not asked for' 0 '' 'out-sums: unchanged' convert_to ckpt out-sums
  expect 'the same, not recorded' 2 '' 'but it does not say that these published hashes were compared; verify --published compares them; --force replaces it' \
    convert_to ckpt out-not --published SHA256SUMS
  expect 'replaced' 0 '' 'as published' convert_to ckpt out-not --force --published SHA256SUMS
  expect 'then it is' 0 'SHA256SUMS' '' recorded out-not
  expect 'an output again' 0 '' '' convert_to out-sums again -q
  expect 'keeps the record' 0 'SHA256SUMS' '' recorded again
}
test_added_sets() {
  files ckpt out out-sums SHA256SUMS
  change $last
  expect '--add of another file' 2 '' "$shard: SHA-256 is" add changed out --published SHA256SUMS
  expect '--add' 0 '' '' add ckpt out --published SHA256SUMS
  expect 'is recorded' 0 'SHA256SUMS' '' recorded out
  expect '--add to itself' 0 '' '' add out-sums out-sums
  expect 'keeps the record, too' 0 'SHA256SUMS' '' recorded out-sums
  expect 'verify of two sets' 0 '' '' "$program" verify out-sums -q --published SHA256SUMS
}
# verify without the checkpoint
test_verify() {
  files ckpt out SHA256SUMS tree.json shards lacks longer.json
  expect 'verify' 0 "^out: as published in SHA256SUMS: $all files \(" '' proof out
  expect 'by the list of the hub' 0 "^out: as published in tree.json: $all files \(" '' proof out tree.json
  expect 'JSON' 0 "\"published\":\{\"list\":\"tree.json\",\"files\":$all,\"bytes\":[1-9][0-9]*,\"not_listed\":\[\],\"not_kept\":\[\]\}" '' \
    proof out tree.json --json
  expect 'with the checkpoint, too' 0 'as published' '' proof out tree.json --source ckpt
  expect 'with one thread' 0 'as published' '' proof out tree.json --threads 1
  (cat SHA256SUMS && echo "$hash  original/model.safetensors" && echo "$hash  extra.bin") >more
  expect 'files that were not kept' 0 'published, but not kept by convert: extra.bin, original/model.safetensors$' '' proof out more
  expect 'files that are not listed' 0 'without a published hash: .*config.json' '' proof out shards
  expect 'a shard that is not listed' 2 '' "$shard: not in lacks; give a list with all shards$" proof out lacks
  expect 'another size' 1 "$shard: restored, it has $size bytes, $((size + 1)) as published \(longer.json\)" '' proof out longer.json
}
test_verify_finds_another_checkpoint() {
  files ckpt SHA256SUMS
  for at in $last $((size / 2)); do
    change $at
    rm -rf out && convert changed out --backend marlin --engine vllm
    expect "made from another shard: $at" 0 right '' "$program" verify out
    expect "is not as published: $at" 1 "^$shard: restored, its SHA-256 is [0-9a-f]{64}, $hash as published \(SHA256SUMS\)" '' \
      proof out
    also 'right|as published in' 0
  done
  copy changed
  sed -i 's/"vocab_size"/"vocab_sizf"/' changed/config.json
  convert changed out-config --backend marlin --engine vllm
  expect 'another config.json' 1 '^config.json: restored, its SHA-256 is ' '' proof out-config
}
test_refused_verify() {
  files ckpt out tree.json SHA256SUMS
  expect 'a list that is none' 2 '' "config.json: " proof out ckpt/config.json
  expect 'verify --part' 2 '' '--published' "$program" verify out --published tree.json --part 0/2
  convert ckpt lossy --backend flashinfer-humming --engine sglang
  expect 'a lossy backend' 2 '' 'lossy: .* does not hold the original files: the backend is lossy' proof lossy
  convert ckpt out --backend flashinfer-humming --engine sglang --add
  expect 'a lossy set beside another' 0 "^out: as published in SHA256SUMS: $all files \(" '' proof out
  prepare add ckpt lossy
  expect 'and before another' 0 "^lossy: as published in SHA256SUMS: $all files \(" '' proof lossy
  change $last
  convert changed other --backend flashinfer-humming --engine sglang
  prepare add changed other
  expect 'of another shard' 1 "^$shard: restored, its SHA-256 is" '' proof other
}
run_cases
