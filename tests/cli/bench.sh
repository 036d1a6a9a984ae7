#!/usr/bin/env bash
# Times of kernels: without a GPU a clear refusal. usage: bench.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

shape='--hidden 256 --intermediate 128 --experts 8'
bench() { CUDA_VISIBLE_DEVICES= "$program" verify --bench "$@"; }
expect 'bench without a GPU' 2 '' 'error: --bench times the CUDA kernels: ' bench $shape --top-k 2
expect 'bench without a GPU, as JSON' 2 '"kind":"device"' '' bench $shape --top-k 2 --json
expect 'bench of half a shape' 2 '' '--top-k' bench $shape
expect 'bench of nothing' 2 '' 'OUT is missing' bench
expect 'a shape without bench' 2 '' '--bench' "$program" verify $shape --top-k 2
finish
