#!/usr/bin/env bash
# --no-sync: what convert waits for. usage: sync.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

as="--backend marlin --engine sglang"

test_without_a_sync() {
  convert "$tiny" "$dir/synced" $as
  expect 'without a sync' 0 '"writes":{"way":"(direct|cached|memory)","why":"' '' \
    "$program" convert "$tiny" "$dir/cached" $as --no-sync --json -q
  expect 'the same bytes' 0 '' '' diff -r "$dir/synced" "$dir/cached"
  expect 'verify reads it' 0 'right' '' "$program" verify "$dir/cached" --source "$tiny"
}
test_larger_files() {
  "$program" synth gpt-oss-20b "$dir/larger" --tiny --hidden 256 --intermediate 256 --experts 32 -q
  expect 'of larger files' 0 '"writes":{"way":"(direct|cached|memory)","why":"' '' \
    "$program" convert "$dir/larger" "$dir/larger-cached" $as --no-sync --json -q
  convert "$dir/larger" "$dir/larger-synced" $as
  expect 'with the same bytes' 0 '' '' diff -r "$dir/larger-cached" "$dir/larger-synced"
}
test_refused() {
  for other in --force --add "--part 0/2"; do
    expect "not with $other" 2 '' "error: --no-sync: only for a new OUT of one run, without ${other%% *}" \
      "$program" convert "$tiny" "$dir/out" $as --no-sync $other
  done
  nothing out
}
run_cases
