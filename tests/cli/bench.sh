#!/usr/bin/env bash
# What this machine can do; times of kernels: without a GPU a clear refusal. usage: bench.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

shape='--hidden 256 --intermediate 128 --experts 8'
bench() { CUDA_VISIBLE_DEVICES= "$program" verify --bench "$@"; }
expect 'bench without a GPU' 2 '' 'error: --bench times the CUDA kernels: ' bench $shape --top-k 2
expect 'bench without a GPU, as JSON' 2 '"kind":"device"' '' bench $shape --top-k 2 --json
expect 'bench of half a shape' 2 '' '--top-k' bench $shape
expect 'bench of nothing' 2 '' 'OUT is missing' bench
expect 'a shape without bench' 2 '' '--bench' "$program" verify $shape --top-k 2

# in memory where there is room for its files: what the disk can do is not looked at here
[ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1)" -gt 4000000 ] && [ -w /dev/shm ] && place=/dev/shm ||
  place=$dir
here=$(mktemp -d -p "$place")
trap 'rm -rf "$dir" "$here"' EXIT
machine() { "$program" bench --dir "$here" --repeats 1 "$@"; }
expect 'the answer first' 0 '^.*/gpt-oss, 392 kB, for triton-hopper of vllm: about .* s, bound by the (disk|processor)$' '-v measures every layout' \
  machine --checkpoint "$tiny" --backend triton-hopper
expect 'what was packed' 0 'packing flashinfer_sm90_v2.codes: [0-9.]+ GB/s' '-v measures every layout' \
  machine --backend flashinfer-cutlass --engine sglang
few_lines() { [ "$(machine -q | wc -l)" -le 8 ]; }
expect 'no long table' 0 '' '' few_lines
expect 'what convert would take' 0 'gpt-oss, 392 kB, for triton-hopper of vllm: about' 'auto: triton-hopper: vllm 0.33.0 on sm90' \
  machine --checkpoint "$tiny" --backend auto --gpu h100
expect 'of a release' 0 '"backend":"marlin","engine":"vllm"' 'auto: marlin: vllm 0.31.0 on sm89' \
  machine --checkpoint "$tiny" --backend auto --gpu l4 --engine vllm==0.31.0 --json
expect 'auto is for a checkpoint' 2 '' 'error: --backend auto: it depends on the checkpoint; add --checkpoint' machine --backend auto
expect 'a backend that is not there' 2 '' "no backend 'marln'; .*did you mean marlin" machine --backend marln
expect 'a GPU that it is not for' 2 '' 'error: --gpu sm90: flashinfer-trtllm of vllm is for SM10x' machine --backend flashinfer-trtllm --gpu h100
convert "$tiny" "$dir/o" --backend marlin --engine vllm
default() { MXFP4_PACK_BACKEND=triton-hopper MXFP4_PACK_ENGINE=vllm==9.9.9 machine --checkpoint "$dir/o"; }
expect 'what an output was made of, by defaults from the environment' 0 '/o, 392 kB, for triton-hopper of vllm: about' \
  'vllm 9.9.9 is newer than' default
expect 'nothing is left' 0 '' '' rmdir "$here"
finish
