#!/usr/bin/env bash
# The list of backends. usage: backends.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

expect 'backends' 0 '^marlin +sglang' 'CUDA' "$program" backends
expect 'backends as JSON' 0 '"backend":"marlin","engine":"vllm"' '' "$program" backends --json
# The README's table says of each backend where it runs.
gpus() {
  "$program" backends --json | PYTHONPATH=$root/tests/engines python3 -B -c '
import json, sys
from matrix import GPUS, gpu_of
runs = {}
for b in json.load(sys.stdin)["backends"]:
    if b["loader"]:
        runs.setdefault((b["engine"], b["backend"]), set()).add(b["gpu"])
wrong = [(key, gpus) for key, gpus in runs.items() if key[1] not in GPUS or gpu_of(*key) not in gpus]
print(*wrong, sep="\n", end="")'
}
expect 'the README says where each runs' 0 '' '' gpus
release() { "$program" backends --engine "$1"; }
expect 'of an engine release' 0 '^marlin +vllm' 'CUDA' release vllm==0.33.0
expect 'of one that is not said' 2 '' 'error: --engine vllm==: no release after ==' release vllm==
requires() { "$program" backends --engine vllm --gpu h100 -v "$@"; }
expect 'what each requires' 0 '^    requires moe_backend marlin, VLLM_MARLIN_INPUT_DTYPE unset$' 'LOADER' requires
expect 'where the model decides it' 0 '^    requires moe_backend triton or triton_unfused$' 'LOADER' requires
expect 'of a model' 0 '^    requires moe_backend triton$' 'LOADER' requires --model "$tiny"
finish
