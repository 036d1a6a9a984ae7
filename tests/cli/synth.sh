#!/usr/bin/env bash
# Random checkpoints. usage: synth.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

cp -r "$tiny" "$dir/t"
expect 'synth' 0 '' 'at random, seed 7' "$program" synth deepseek-v4-flash "$dir/s" --tiny --seed 7
expect 'synth of an unknown model' 2 '' 'error: ' "$program" synth nothing "$dir/s2"
expect 'again to the same place' 2 '' 's: exists; choose another place, or replace .* with --force' \
  "$program" synth deepseek-v4-flash "$dir/s" --tiny
expect 'replaced' 0 '' 'at random, seed 0' "$program" synth gpt-oss-20b "$dir/s" --tiny --force
expect 'which it then is' 0 'gpt-oss' '' "$program" inspect "$dir/s"
expect 'another checkpoint is not replaced' 2 '' 't: exists and was not made by mxfp4-pack' \
  "$program" synth gpt-oss-20b "$dir/t" --tiny --force
echo mine >"$dir/s/notes.txt"
expect 'nor one with a file of others' 2 '' 's: notes.txt was not made by mxfp4-pack' \
  "$program" synth gpt-oss-20b "$dir/s" --tiny --force
finish
