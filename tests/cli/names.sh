#!/usr/bin/env bash
# Names that users have for checkpoints and backends. usage: names.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

as() { "$program" convert "$tiny" "$dir/x" --engine vllm --dry-run "$@"; }
sglang() { "$program" convert "$tiny" "$dir/x" --engine sglang --dry-run "$@"; }
export HF_HUB_CACHE=$once/hub
repository=$HF_HUB_CACHE/models--openai--gpt-oss-20b
mkdir -p "$repository/refs" "$repository/snapshots" "$HF_HUB_CACHE/models--openai--gpt-oss-120b" "$repository/blobs"
printf abc >"$repository/refs/main"
cp -r "$tiny" "$repository/snapshots/abc"
for file in "$repository"/snapshots/abc/*.safetensors; do  # the cache has links to blobs
  mv "$file" "$repository/blobs/"
  ln -s "../../blobs/${file##*/}" "$file"
done

test_hub() {
  expect 'a name of the hub that the cache has' 0 'gpt-oss' 'openai/gpt-oss-20b: its snapshot .*snapshots/abc$' \
    "$program" inspect openai/gpt-oss-20b
  expect 'a repository of the cache' 0 'gpt-oss' 'its snapshot .*snapshots/abc' "$program" inspect "$repository"
  expect 'a whole cache' 2 '' 'hub: a cache of 2 models; choose one, for example .*gpt-oss-120b' "$program" inspect "$HF_HUB_CACHE"
  expect 'a name that the cache has not' 2 '' 'give hf://openai/gpt-oss-9b, or download it with: hf download openai/gpt-oss-9b --local-dir gpt-oss-9b$' \
    "$program" inspect openai/gpt-oss-9b
  expect "the hub's address of it" 0 'gpt-oss' 'its snapshot .*snapshots/abc$' \
    "$program" inspect https://huggingface.co/openai/gpt-oss-20b
  for address in huggingface.co/ hf.co/ https://hf.co/; do
    expect "at $address, of its main branch" 0 'gpt-oss' 'its snapshot .*snapshots/abc$' \
      "$program" inspect "${address}openai/gpt-oss-20b/tree/main/"
  done
  expect 'one that the cache has not, by its address, is read from the hub' 2 '' '^mxfp4-pack: error: hf://openai/gpt-oss-9b at HF_ENDPOINT: ' \
    env HF_ENDPOINT=http://127.0.0.1:9 "$program" inspect huggingface.co/openai/gpt-oss-9b/tree/main
  expect 'a name with a slash behind' 0 'gpt-oss' 'its snapshot .*snapshots/abc$' "$program" inspect openai/gpt-oss-20b/
}
test_mistyped_folders() {
  mkdir -p models/gpt-oss-20b
  expect 'a mistyped folder is no name of the hub' 2 '' 'models/gpt-os: no such directory; a checkpoint directory was' \
    "$program" inspect models/gpt-os
  cp "$tiny"/* models/gpt-oss-20b
  expect 'the folder around a checkpoint' 2 '' 'models: no .*expected; is models/gpt-oss-20b meant\?$' "$program" inspect models
  prepare mkdir models/gpt-oss-20b/original
  prepare cp models/gpt-oss-20b/model-00000-of-*.safetensors models/gpt-oss-20b/original/
  expect 'a folder of one' 2 '' 'original: no config.json; .*; is models/gpt-oss-20b meant\?$' "$program" inspect models/gpt-oss-20b/original
  expect 'a file of one' 2 '' 'config.json: a file; .*; is models/gpt-oss-20b meant\?$' "$program" inspect models/gpt-oss-20b/config.json
}
test_conversion_by_name() {
  expect 'converted by name' 0 '' 'out: 18 packed' "$program" convert openai/gpt-oss-20b out --backend marlin --engine vllm==0.33.0
  expect 'verified by name' 0 'right at level kernels' 'its snapshot' "$program" verify out --source openai/gpt-oss-20b
  odd=$'out\n\\one\'s'
  mv out "$odd"
  command_of() { "$program" inspect "$odd" | sed -n 's/^  serve     vllm serve //p'; }
  eval "said=$(command_of)"
  expect 'a name with a new line can be copied' 0 '' '' test "$said" = "$odd"
  mv "$odd" out
  expect 'an output says how it is served' 0 '^  serve     vllm serve out$' '' "$program" inspect out
  expect 'and what it fits' 0 '^  made for  vllm 0.26.0 to ' '' "$program" inspect out
  expect 'and what was tested' 0 '^  loader    vllm from 0.26.0 on; tested for gpt-oss at tensor-parallel sizes 1, 2$' '' "$program" inspect out
  expect 'and who sets what' 0 '^  settings  the loader sets moe_backend marlin; it requires VLLM_' '' "$program" inspect out
}
# names that would turn the direction of what follows, or colour it
test_escapes() {
  turned=$'a\u202eb\u2066c\e[31m'
  cp -r "$tiny" "$turned"
  echo '{}' >"$turned/$turned.json"
  mkdir -p "$turned/x$turned/y/z"
  touch "$turned/x$turned/y/z/deep" "$turned/$turned.bin"
  shown_of() {
    "$program" "$@" >shown.txt 2>&1
    ! LC_ALL=C grep -nP '\xe2\x80\xae|\xe2\x81\xa6|\x1b' shown.txt && grep -qF 'a\xe2\x80\xaeb\xe2\x81\xa6c\x1b[31m' shown.txt
  }
  escapes() { expect "a name is escaped: $*" 0 '' '' shown_of "$@"; }
  escapes inspect "$turned"
  escapes convert "$turned" "o$turned" --backend marlin --engine vllm -v
  escapes convert "$turned" "o$turned" --backend marlin --engine vllm
  escapes convert "$turned" "q$turned" --backend marlin --engine sglang
  escapes verify "o$turned" --source "$turned"
  escapes inspect "o$turned"
  escapes diff "o$turned" "q$turned"
  escapes unpack "o$turned" "u$turned"
  escapes convert "$turned" "p$turned" --backend marlin --engine vllm --part 0/2
  escapes clean . -v
  escapes merge "p$turned"
  escapes synth gpt-oss-20b "s$turned" --tiny
  prepare rm "o$turned/README.md"
  escapes verify "o$turned"
  escapes "$turned"
  escapes convert "$turned" x --backend "$turned" --engine vllm
}
test_longest_name() {
  long() { printf '%*s' "$1" '' | tr ' ' o; }
  expect 'the longest name of OUT' 0 '' '' \
    "$program" convert "$tiny" "$dir/$(long 243)" --backend marlin --engine vllm -q
  expect 'one that is too long' 2 '' 'a name of 244 bytes, at most 243 expected, since the staging directory'"'"'s name is longer' \
    "$program" convert "$tiny" "$dir/$(long 244)" --backend marlin --engine vllm -q
}
test_names_of_the_engine() {
  expect "the engine's own name" 0 '^flashinfer-cutlass of vllm' '' as --backend flashinfer_cutlass
  expect 'one that the GPU decides' 0 '^triton-hopper of vllm' '' as --backend triton --gpu h100
  expect 'never one that loses values' 0 '^flashinfer-cutlass of sglang' '' sglang --backend flashinfer_mxfp4 --gpu h100
  expect 'and another' 0 '^triton-blackwell of vllm' '' as --backend triton --gpu b200
}
test_lists_of_backends() {
  expect 'a filter' 0 '^triton-hopper ' '' "$program" backends --engine vllm --gpu h100 --model "$tiny" -q
  others() { "$program" backends --engine vllm --gpu h100 -q | grep -c 'blackwell\|aiter\|sglang'; }
  expect 'that leaves out the rest' 1 '^0$' '' others
  expect 'the default is marked' 0 '^marlin +vllm +[a-z0-9-]+ \* ' '' "$program" backends -q
  expect 'what auto takes' 0 . 'auto chooses triton-hopper' "$program" backends --engine vllm --gpu h100 --model "$tiny"
  synth kimi-k3 k3 --tiny
  expect 'why it takes nothing' 0 '^aiter-w4a4 ' 'auto: vllm .*kimi-k3, gfx950: ' "$program" backends --engine vllm --gpu mi350x --model k3
  expect 'a kernel whose own library makes its form' 2 '' 'b12x: nothing to pack: vLLM passes the original experts on' as --backend b12x
  expect 'one on an AMD GPU' 0 '^aiter-triton of vllm' '' as --backend aiter_triton_mxfp4_bf16 --gpu mi300x
}
run_cases
