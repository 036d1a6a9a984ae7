#!/usr/bin/env bash
# The list of backends. usage: backends.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

expect 'backends' 0 '^marlin +sglang' 'CUDA' "$program" backends
expect 'backends as JSON' 0 '"backend":"marlin","engine":"vllm"' '' "$program" backends --json
finish
