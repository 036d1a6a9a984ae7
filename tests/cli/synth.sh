#!/usr/bin/env bash
# Random checkpoints. usage: synth.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

expect 'synth' 0 '' 'at random, seed 7' "$program" synth deepseek-v4-flash "$dir/s" --tiny --seed 7
expect 'synth of an unknown model' 2 '' 'error: ' "$program" synth nothing "$dir/s2"
finish
