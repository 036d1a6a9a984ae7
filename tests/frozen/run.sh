#!/usr/bin/env bash
# Outputs of format version 1, written by the first version of the program; every later version must read them. Outputs
# that are derived from them, or sets that are added, stay version 1, because the source's headers are missing.
# usage: run.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/../cli/lib.sh"
command -v python3 >/dev/null || skip 'no python3'
frozen=$root/testdata/frozen-v1
contents=$root/tests/frozen/contents.py

entries() { grep -v '^#' "$1"; }
is_source() { diff "$frozen/sources/$1.contents" <("$contents" "$2"); }

make_source() {  # NAME SYNTH-ARGUMENTS...
  prepare "$program" synth "$2" "$dir/$1" "${@:3}" -q
  cp "$frozen"/companions/* "$dir/$1"
  expect "synth still makes $1" 0 '' '' is_source "$1" "$dir/$1"
}

check_reading() {
  local out=$1 source=$2 unpacks=$3 level=bytes
  [ "$unpacks" = whole ] || level=files  # what can be checked without the source
  expect "$name: inspect" 0 '^set 0: .*tensors' '' "$program" inspect "$out"
  expect "$name: inspect as JSON" 0 '"problems":\[\]' '' "$program" inspect "$out" --json
  expect "$name: verify" 0 "right at level $level" '' "$program" verify "$out"
  for level in files bytes kernels; do
    expect "$name: verify with the source, level $level" 0 "right at level $level" '' \
      "$program" verify "$out" --source "$source" --level "$level"
  done
  expect "$name: diff with itself" 0 'tensors .*are equal' '' "$program" diff "$out" "$out"
}

check_unpacking() {
  local out=$1 source_name=$2
  expect "$name: unpack" 0 '' "each with its source's checksum" "$program" unpack "$out" "$dir/unpacked"
  expect "$name: what was unpacked is the source" 0 '' '' is_source "$source_name" "$dir/unpacked"
  rm -rf "$dir/unpacked"
  for engine in vllm sglang; do
    # version 1: of these sizes the one that vLLM has for compressed-tensors takes none
    expect "$name: convert it for $engine" 0 '' '' \
      "$program" convert "$out" "$dir/converted" --backend marlin --engine $engine --layout-version 1 --no-loader -q
    convert "$dir/$source_name" "$dir/expected" --backend marlin --engine $engine --layout-version 1
    expect "$name: as the source is converted for $engine" 0 '' '' diff -r "$dir/converted" "$dir/expected" \
      -x mxfp4-pack.json -x config.json -x source-headers
    expect "$name: in version 1" 0 '^"format_version": 1,$' '' sed -n 2p "$dir/converted/mxfp4-pack.json"
    expect "$name: all is right" 0 'right at level kernels' '' \
      "$program" verify "$dir/converted" --source "$dir/$source_name"
    rm -rf "$dir/converted" "$dir/expected"
  done
}

check_refusals() {
  local out=$1 why=$2
  expect "$name: no unpack" 2 '' "$why" "$program" unpack "$out" "$dir/unpacked"
  expect "$name: no convert from it" 2 '' "$why" "$program" convert "$out" "$dir/converted" --backend marlin --engine vllm
}

# A set that no frozen output has.
check_adding() {
  local copy=$1 source=$2
  local add=("$program" convert "$source" "$copy" --add --backend marlin-fp8 --engine vllm --no-loader -q)
  if [ "$name" = sharded-state ]; then
    expect "$name: nothing is added" 2 '' 'sharded state' "${add[@]}"
    return
  fi
  expect "$name: add a set to a copy" 0 '' '' "${add[@]}"
  expect "$name: it stays version 1" 0 '^"format_version": 1,$' '' sed -n 2p "$copy/mxfp4-pack.json"
  expect "$name: with it, all is right" 0 'marlin-fp8 of vllm: right at level kernels' '' \
    "$program" verify "$copy" --source "$source"
}

check_damage() {
  local file=$1/rest-00001.safetensors
  local last=$(tail -c 1 "$file" | od -An -to1 | tr -d ' ')
  put_last "$file" "\\0$(printf %o $((8#$last ^ 1)))"
  expect "$name: damaged" 1 'rest-00001' '' "$program" verify "$1"
}

cd "$frozen" || exit 1
expect 'the outputs are those of that time' 0 '' '' sha256sum -c --quiet --strict SHA256SUMS
while read -r -a words; do make_source "${words[@]}"; done < <(entries sources/list)
while read -r name source unpacks _; do
  cp -r "$name" "$dir/copy"
  check_reading "$name" "$dir/$source" "$unpacks"
  case $unpacks in
    whole) check_unpacking "$name" "$source" ;;
    lossy) check_refusals "$name" 'is lossy' ;;
    rank) check_refusals "$name" 'no set holds all of its ranks' ;;
  esac
  check_adding "$dir/copy" "$dir/$source"
  check_damage "$dir/copy"
  expect "$name: --force replaces it" 0 '' '' \
    "$program" convert "$dir/$source" "$dir/copy" --force --backend marlin --engine vllm --layout-version 1 --no-loader -q
  rm -rf "$dir/copy"
done < <(entries list)
expect 'nothing has written to them' 0 '' '' sha256sum -c --quiet --strict SHA256SUMS
finish
