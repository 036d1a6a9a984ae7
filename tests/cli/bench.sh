#!/usr/bin/env bash
# What this machine can do; times of kernels: without a GPU a clear refusal. usage: bench.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

shape='--hidden 256 --intermediate 128 --experts 8'
bench() { CUDA_VISIBLE_DEVICES= "$program" verify --bench "$@"; }

test_kernels_without_a_gpu() {
  expect 'bench without a GPU' 2 '' 'error: --bench times the CUDA kernels: ' bench $shape --top-k 2
  expect 'bench without a GPU, as JSON' 2 '"kind":"device"' '' bench $shape --top-k 2 --json
  named() { bench $shape --top-k 2 --device cuda:7 2>&1 | grep -v 'bench times'; }
  expect 'bench of a GPU that is not there' 0 'error: ' '' named
  expect 'bench of half a shape' 2 '' '--top-k' bench $shape
  expect 'bench of nothing' 2 '' 'OUT is missing' bench
  expect 'a shape without bench' 2 '' '--bench' "$program" verify $shape --top-k 2

  }
machine() { "$program" bench --repeats 1 "$@"; }

test_machine() {
  expect 'what was packed' 0 'packing flashinfer_sm90_v2.codes: [0-9.]+ GB/s' '-v measures every layout' \
    machine --backend flashinfer-cutlass --engine sglang
  few_lines() { [ "$(machine -q | wc -l)" -le 4 ]; }
  expect 'no long table' 0 '' '' few_lines
  expect 'as JSON' 0 '"hash":[0-9.e+]+,"packing":\[\{"layout":' '' machine --json
  expect 'a backend that is not there' 2 '' "no backend 'marln'; .*did you mean marlin" machine --backend marln
  default() { MXFP4_PACK_BACKEND=triton-hopper MXFP4_PACK_ENGINE=vllm==9.9.9 machine; }
  expect 'defaults from the environment' 0 'packing triton_hopper_a.codes: ' 'vllm 9.9.9 is newer than' default
  expect 'nothing is written' 0 '' '' ls -A
}
run_cases
