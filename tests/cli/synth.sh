#!/usr/bin/env bash
# Random checkpoints. usage: synth.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

test_again_and_force() {
  cp -r "$tiny" "$dir/t"
  echo >>"$dir/t/config.json"
  expect 'synth' 0 '' 'at random, seed 7' "$program" synth deepseek-v4-flash "$dir/s" --tiny --seed 7
  expect 'synth of an unknown model' 2 '' 'error: ' "$program" synth nothing "$dir/s2"
  expect 'synth with a seed below 0' 2 '' 'error: --seed: -1 is no number from 0 to 18446744073709551615' \
    "$program" synth gpt-oss-20b "$dir/s2" --tiny --seed -1
  expect 'again to the same place' 2 '' 's: exists; choose another place, or replace .* with --force' \
    "$program" synth deepseek-v4-flash "$dir/s" --tiny
  cp -r "$dir/s" "$dir/seven"
  expect 'written anew' 0 '' 'at random, seed 0' "$program" synth deepseek-v4-flash "$dir/s" --tiny --force
  expect 'what was there is kept' 0 '' '' diff -r "$dir/seven" "$dir/s.kept-1"
  expect 'which it then is' 0 '' 'seed 0' "$program" synth deepseek-v4-flash "$dir/fresh" --tiny --seed 0
  expect 'byte for byte' 0 '' '' diff -r "$dir/s" "$dir/fresh"
  expect 'another checkpoint is not replaced' 2 '' 't: exists, and nothing in it says that this command made it' \
    "$program" synth gpt-oss-20b "$dir/t" --tiny --force
  echo mine >"$dir/s/notes.txt"
  expect 'nor one with a file of others' 2 '' 's: notes.txt was not made by mxfp4-pack' \
    "$program" synth deepseek-v4-flash "$dir/s" --tiny --force
}
run_cases
