#!/usr/bin/env bash
# --no-sync: what convert waits for. usage: sync.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

as="--backend marlin --engine sglang"
convert "$tiny" "$dir/synced" $as
expect 'without a sync' 0 '"writes":{"way":"(direct|cached|memory)","why":"' '' \
  "$program" convert "$tiny" "$dir/cached" $as --no-sync --json -q
expect 'the same bytes' 0 '' '' diff -r "$dir/synced" "$dir/cached"
"$program" synth gpt-oss-20b "$dir/larger" --tiny --hidden 256 --intermediate 256 --experts 32 -q
expect 'of larger files' 0 '"writes":{"way":"(direct|cached|memory)","why":"' '' \
  "$program" convert "$dir/larger" "$dir/larger-cached" $as --no-sync --json -q
convert "$dir/larger" "$dir/larger-synced" $as
expect 'with the same bytes' 0 '' '' diff -r "$dir/larger-cached" "$dir/larger-synced"
for other in --force --add "--part 0/2"; do
  expect "not with $other" 2 '' "error: --no-sync: only for a new OUT of one run, without ${other%% *}" \
    "$program" convert "$tiny" "$dir/out" $as --no-sync $other
done
echo "'$tiny' '$dir/synced' --force" >"$dir/list"
expect 'nor in a line of a list' 2 '' '--no-sync: only for a new OUT' \
  "$program" convert --filelist "$dir/list" $as --no-sync
expect 'nothing was begun' 1 '' '' test -e "$dir/out"
expect 'verify reads it' 0 'right' '' "$program" verify "$dir/cached" --source "$tiny"
finish
