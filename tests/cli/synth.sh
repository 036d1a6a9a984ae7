#!/usr/bin/env bash
# Random checkpoints. usage: synth.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

test_again() {
  expect 'synth' 0 '' 'at random, seed 7' "$program" synth deepseek-v4-flash "$dir/s" --tiny --seed 7
  expect 'synth of an unknown model' 2 '' 'error: ' "$program" synth nothing "$dir/s2"
  expect 'synth with a seed below 0' 2 '' 'error: --seed: -1 is no number from 0 to 18446744073709551615' \
    "$program" synth gpt-oss-20b "$dir/s2" --tiny --seed -1
  expect 'again to the same place' 2 '' 's: exists; choose another place$' \
    "$program" synth deepseek-v4-flash "$dir/s" --tiny
  expect 'the same seed elsewhere' 0 '' 'seed 7' "$program" synth deepseek-v4-flash "$dir/fresh" --tiny --seed 7
  expect 'has the same bytes' 0 '' '' diff -r "$dir/s" "$dir/fresh"
}
run_cases
