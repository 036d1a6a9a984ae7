#!/usr/bin/env bash
# Kills an unpack --force before each of its last calls.
# usage: aside.sh MXFP4-PACK INJECT-LIBRARY CKPT
# DEST must exist, the previous DEST must have its old or its new name or be in the staging directory, and a further run
# must succeed and give it the new name.
. "$(dirname "$0")/lib.sh"
"$program" convert "$dir/in" "$dir/out" --backend marlin --engine vllm -q || exit 1
work() { "$program" unpack "$dir/out" "$dir/dest" --force --threads 1 -q; }
reset() {
  rm -rf "$dir"/dest* "$dir"/.dest.*
  cp -r "$dir/in" "$dir/dest"
  for shard in "$dir"/dest/*.safetensors; do truncate -s -1 "$shard" && printf 'x' >>"$shard"; done
}
is_kept() { [ -d "$dir/$1" ] && [ "$(bytes "$dir/$1")" = "$before" ]; }
reset
before=$(bytes "$dir/dest")
run_undisturbed
fault=KILL first=$((calls > 40 ? calls - 40 : 1))
for ((call = first; call <= calls; ++call)); do
  reset
  { inject $call KILL; } 2>/dev/null
  [ -d "$dir/dest" ] || die "there is no DEST: $(ls -A "$dir")"
  is_kept dest || is_kept dest.kept-1 || is_kept .dest.mxfp4-pack/new || die 'what was there is lost'
  work 2>"$dir/stderr" || die 'the next run'
  is_kept dest.kept-1 || die 'what was there is not kept'
  diff -r "$dir/in" "$dir/dest" || die 'other bytes'
done
echo "$calls calls, killed before each from $first on"
