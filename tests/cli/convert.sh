#!/usr/bin/env bash
# convert: the plan, the output and the refusals.
# usage: convert.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

peak() { python3 -c '
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:-1], stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 < float(sys.argv.pop()))
sys.exit(code)' "$@" $most; }
dry() { "$program" convert "$tiny" "$dir/o" --backend marlin --engine vllm --dry-run "$@"; }

test_dry_run() {
  expect 'dry run by role' 0 '^w13 codes +3 +590 kB  I32 \[3, 16, 1024\]$' '' dry
  expect 'dry run: space' 0 '^disk: 1.13 MB \(1130346 bytes\) in 2 files; .* are free$' '' dry
  expect 'dry run -v' 0 'experts.w13_weight  I32 \[3, 16, 1024\]  packed/packed-00001.safetensors  196608' '' dry -v
  expect 'dry run as JSON' 0 '"free_bytes":[0-9]+,$' '' dry --json
  dry_traced() { ASAN_OPTIONS=detect_leaks=0 strace -f -qq -e trace=%file,ftruncate,write -o "$dir/calls" "$program" convert "$tiny" "$dir/o" --backend marlin \
    --engine vllm --dry-run >"$dir/plan"; grep -E 'O_(CREAT|TMPFILE|WRONLY|RDWR)|mkdir|ftruncate' "$dir/calls" | grep -vE '/dev/null|/proc|/sys'; }
  if command -v strace >/dev/null; then expect 'dry run opens no file to write' 1 '' '' dry_traced; fi
  expect 'dry run writes nothing' 2 '' '/o: no such directory; an output of' "$program" verify "$dir/o"
}
test_messages_and_json() {
  expect 'convert says what to do next' 0 '' 'check it with: mxfp4-pack verify' \
    "$program" convert "$tiny" "$dir/o" --backend marlin --engine vllm
  expect 'convert refuses another OUT' 2 '' '--force' "$program" convert "$tiny" "$dir/o" --backend marlin --engine sglang
  expect 'convert, quiet' 0 '' '' "$program" convert "$tiny" "$dir/q" --backend marlin --engine sglang -q
  expect 'convert as JSON' 0 '^\{"backend":"marlin".*"zero_scales":[0-9]+,"seconds":\{"read":[0-9.e-]+,.*"wall":[0-9.]+\},"device":\{.*\},"writes":\{.*\}\}$' '' \
    "$program" convert "$tiny" "$dir/j" --backend marlin --engine sglang --json -q
}
test_packed_output_as_input() {
  convert "$tiny" o --backend marlin --engine vllm
  convert "$tiny" q --backend marlin --engine sglang
  expect 'packed output as input' 0 '' 'packed tensors for sglang' "$program" convert "$dir/o" "$dir/p" --backend marlin --engine sglang
  expect 'gives the same bytes' 0 '' '' diff -r "$dir/p" "$dir/q"
  expect 'has no shards to link' 2 '' 'o: is packed; --link needs a checkpoint.s own shards' "$program" convert o l --backend marlin --engine sglang --link
}
test_tensor_parallel() {
  expect 'tensor parallel' 0 'w13_weight.*packed/tp2-rank1-00001' '' \
    "$program" convert "$tiny" "$dir/tp" --backend marlin --engine vllm --tp-size 2 --dry-run -v
  five() { "$program" convert "$tiny" "$dir/tp5" --backend marlin --engine vllm --tp-size 5; }
  expect 'ranks that do not divide heads' 0 '' \
    'warning: 4 attention heads or 2 key-value heads do not divide by tensor-parallel size 5, so vllm needs .*; --tp-size 1, 2 would do$' five
  also 'serve it with' 0
  expect 'what is served, and for whom' 0 '' 'this set is for tensor-parallel size 2 only; convert --add --tp-size N adds one for N$' \
    "$program" convert "$tiny" "$dir/tp2" --backend marlin --engine vllm --tp-size 2
  expect 'who sets what' 0 '' 'the loader sets moe_backend marlin; it requires VLLM_MARLIN_INPUT_DTYPE unset$' \
    "$program" convert "$tiny" "$dir/tp2" --backend marlin --engine vllm --tp-size 2 --force
  expect 'a shape that cannot be served' 2 '' 'cannot serve it: hidden 96 and intermediate 160 must be multiples of 128' \
    "$program" convert "$tiny" "$dir/no" --backend flashinfer-humming --engine vllm
}
test_folder_that_is_too_deep() {
  prepare cp -r "$tiny" "$dir/deep"
  mkdir -p "$dir/deep/a/b/c"
  echo 3 >"$dir/deep/a/b/c/3"
  echo 2 >"$dir/deep/a/b/2"
  expect 'a folder too deep is left out, and named' 0 '' 'skipped: a/b/c/ \(more than two folders down\)$' \
    "$program" convert "$dir/deep" "$dir/of-deep" --backend marlin --engine vllm
  expect 'one less deep is carried' 0 '' '' test -e "$dir/of-deep/a/b/2" -a ! -e "$dir/of-deep/a/b/c"
}
# a companion's size is not in memory
test_large_companion() {
  prepare cp -r "$tiny" "$dir/large"
  prepare truncate -s 250M "$dir/large/notes.bin2"
  most=100e6
  ! is_sanitized || most=1e12
  as=(--backend marlin --engine vllm --threads 1 -q)
  expect 'convert with a large companion' 0 '^True$' '' peak "$program" convert "$dir/large" "$dir/with-large" "${as[@]}"
  expect 'which is there' 0 '' '' cmp "$dir/large/notes.bin2" "$dir/with-large/notes.bin2"
  expect 'verify of it' 0 '^True$' '' peak "$program" verify "$dir/with-large" --source "$dir/large" --level bytes -q
  expect 'the same again' 0 '^True$' '' peak "$program" convert "$dir/large" "$dir/with-large" "${as[@]}"
}
run_cases
