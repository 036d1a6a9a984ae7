#!/usr/bin/env bash
# Kills convert at random moments. usage: run.sh MXFP4-PACK CKPT COUNT [WORK-DIR]
# A kill at a random moment of the time that a whole run takes, then convert --resume until it ends, each time killed
# again with probability one half. OUT must be absent or whole at every moment, and in the end have the bytes of an
# undisturbed run; --resume must keep every job that the journal names. Long form: tests/crash/long.sh.
set -u
program=$1 checkpoint=$2 count=$3
dir=$(mktemp -d -p "${4:-${TMPDIR:-/tmp}}")
trap 'rm -rf "$dir"' EXIT
out=$dir/out
convert() { "$program" convert "$checkpoint" "$1" --backend marlin --engine vllm "${@:2}"; }
sum() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum) | sha256sum; }
die() { echo "FAILED: kill $i: $*"; exit 1; }

begun=$(date +%s%N)
convert "$dir/whole" -q || exit 1
micros=$((($(date +%s%N) - begun) / 1000))
expected=$(sum "$dir/whole")
rm -r "$dir/whole"

# A process killed after between 0 and 1.1 times the duration of a whole run.
killed_run() {
  local random=$((RANDOM * 32768 + RANDOM))
  local wait=$((random % (micros * 11 / 10 + 1)))
  "$program" convert "$checkpoint" "$out" --backend marlin --engine vllm --resume >/dev/null 2>"$dir/err" &
  local pid=$!
  sleep "$((wait / 1000000)).$(printf %06d $((wait % 1000000)))"
  kill -KILL $pid 2>/dev/null
  wait $pid 2>/dev/null
  [ ! -e "$out" ] || [ "$(sum "$out")" = "$expected" ] || die "OUT is there and not whole"
  kills=$((kills + 1))
}

kills=0 midway=0 resumed=0
for ((i = 1; kills < count; ++i)); do
  killed_run
  while [ ! -e "$out" ] && [ $((RANDOM % 2)) = 0 ] && [ $kills -lt "$count" ]; do killed_run; done
  jobs=0
  if [ -e "$dir/.out.mxfp4-pack.journal" ] && [ ! -e "$out" ]; then
    midway=$((midway + 1))
    jobs=$(grep -c '^[0-9]' "$dir/.out.mxfp4-pack.journal")
    if [ $jobs -gt 0 ]; then
      convert "$out" >/dev/null 2>"$dir/err" && die "a plain run took no notice of a partial output"
      grep -q -- '--resume' "$dir/err" || die "a plain run did not name --resume: $(cat "$dir/err")"
    fi
  fi
  if [ -e "$out" ] && [ ! -e "$dir/.out.mxfp4-pack.journal" ]; then :; else
    convert "$out" --resume >/dev/null 2>"$dir/err" || die "--resume failed: $(cat "$dir/err")"
    if [ $jobs -gt 0 ]; then
      grep -q ": $jobs of [0-9]* steps are done already" "$dir/err" || die "$jobs jobs in the journal: $(cat "$dir/err")"
      resumed=$((resumed + 1))
    fi
  fi
  [ "$(sum "$out")" = "$expected" ] || die "other bytes than an undisturbed run"
  [ "$(ls -A "$dir" | grep -v '^err$')" = out ] || die "left behind: $(ls -A "$dir")"
  rm -r "$out"
done
[ $resumed -gt 0 ] || { echo "FAILED: no kill came while jobs were done"; exit 1; }
echo "$kills kills, $midway of $((i - 1)) runs cut short, $resumed resumed from finished jobs; a whole run: $((micros / 1000)) ms"
