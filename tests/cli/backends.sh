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
wrong = {(b["engine"], b["backend"], b["gpu"]) for b in json.load(sys.stdin)["backends"]
         if b["loader"] and (b["backend"] not in GPUS or gpu_of(b["engine"], b["backend"]) != b["gpu"])}
print(*sorted(wrong), sep="\n", end="")'
}
expect 'the README says where each runs' 0 '' '' gpus
finish
