#!/usr/bin/env bash
# Kills convert --part and merge at random moments. usage: parts.sh MXFP4-PACK CKPT COUNT [WORK-DIR]
# CKPT is converted as 3 parts with --link none. Each kill is of a random part's run or of a merge, and sometimes two
# runs go at once. OUT must be absent or whole at every moment; in the end the parts that merge calls missing are
# written, and a merge gives the bytes of an undisturbed run and leaves nothing beside it.
set -u
program=$1 checkpoint=$2 count=$3
dir=$(mktemp -d -p "${4:-${TMPDIR:-/tmp}}")
trap 'rm -rf "$dir"' EXIT
out=$dir/out
convert() { "$program" convert "$checkpoint" "$1" --backend marlin --engine vllm --link none "${@:2}"; }
sum() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum) | sha256sum; }
die() { echo "FAILED: kill $kills: $*"; exit 1; }

begun=$(date +%s%N)
convert "$dir/whole" -q || exit 1
micros=$((($(date +%s%N) - begun) / 1000))
expected=$(sum "$dir/whole")
rm -r "$dir/whole"

is_right() { [ ! -e "$out" ] || [ "$(sum "$out")" = "$expected" ] || die 'OUT is there and not whole'; }
# start: a part's run, or a merge, in the background
start() {
  case $((RANDOM % 4)) in
    3) exec "$program" merge "$out" -q ;;
    *) exec "$program" convert "$checkpoint" "$out" --backend marlin --engine vllm --link none --part $((RANDOM % 3))/3 -q ;;
  esac >/dev/null 2>&1 &
}
kill_soon() {
  local wait=$(((RANDOM * 32768 + RANDOM) % ((micros >> RANDOM % 6) + 1)))  # most runs are much shorter than a whole one
  sleep "$((wait / 1000000)).$(printf %06d $((wait % 1000000)))"
  kill -KILL "$1" 2>/dev/null && killed=$((killed + 1))
  wait "$1" 2>/dev/null
  kills=$((kills + 1))
}
finish() {
  local missing
  while missing=$("$program" merge "$out" -q --json 2>"$dir/err"); code=$?; [ $code = 1 ]; do
    for part in $(sed 's/.*"missing": *\[\([^]]*\)\].*/\1/; s/,/ /g' <<<"$missing"); do
      convert "$out" --part "$part/3" -q 2>"$dir/err" || die "part $part: $(cat "$dir/err")"
      refilled=$((refilled + 1))
    done
  done
  [ $code = 0 ] || {
    grep -q "there are no parts of it" <<<"$missing" || die "merge: $missing"
    for part in 0 1 2; do convert "$out" --part $part/3 -q || die "part $part"; done
    "$program" merge "$out" -q || die 'merge'
  }
}

kills=0 killed=0 refilled=0 ends=0
while [ $kills -lt "$count" ]; do
  start
  first=$!
  if [ $((RANDOM % 3)) = 0 ]; then
    start
    second=$!
    kill_soon $first
    wait $second 2>/dev/null
  else
    kill_soon $first
  fi
  is_right
  if [ $((RANDOM % 4)) = 0 ] || [ -e "$out" ]; then
    finish
    ends=$((ends + 1))
    [ "$(sum "$out")" = "$expected" ] || die 'other bytes than an undisturbed run'
    "$program" merge "$out" -q || die 'a second merge'
    [ "$(ls -A "$dir" | grep -v '^err$')" = out ] || die "left behind: $(ls -A "$dir")"
    rm -r "$out"
  fi
done
[ $killed -gt 0 ] && [ $ends -gt 0 ] || { echo "FAILED: $killed of $kills were killed, $ends ends"; exit 1; }
echo "$kills kills, $killed of running processes; $ends outputs, $refilled parts written again; a whole run: $((micros / 1000)) ms"
