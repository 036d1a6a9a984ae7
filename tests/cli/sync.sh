#!/usr/bin/env bash
# --sync and --no-sync: what convert waits for. usage: sync.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

as="--backend marlin --engine sglang"
convert "$tiny" "$dir/synced" $as --sync
expect 'the page cache has it' 0 '"writes":{"way":"(cached","why":"--no-sync|memory")' '' \
  "$program" convert "$tiny" "$dir/cached" $as --no-sync --json -q
expect 'the same bytes' 0 '' '' diff -r "$dir/synced" "$dir/cached"
for other in --sync --force --add --if-changed "--part 0/2"; do
  expect "not with $other" 2 '' 'error: --[a-z-]+ excludes --(no-sync|part)' "$program" convert "$tiny" "$dir/out" $as --no-sync $other
done
expect 'nothing was begun' 1 '' '' test -e "$dir/out"
convert "$tiny" "$dir/resumed" $as --no-sync --resume
expect 'verify reads it' 0 'right' '' "$program" verify "$dir/cached" --source "$tiny"
finish
