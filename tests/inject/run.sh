#!/usr/bin/env bash
# Fails each system call of a tiny convert in turn. usage: run.sh MXFP4-PACK INJECT-LIBRARY CKPT [STEP [add]]
# STEP n (default 1: every call) takes every n-th call, each with the next of the faults; 1 takes all faults at each.
# A failed call must give exit 2 and a line that names the cause, or an honest success; OUT must be as before unless it
# is whole, the checkpoint must be untouched, and --resume must end in the bytes of an undisturbed run.
# add: the convert is one with --add, and OUT has a set before.
set -u
program=$1 step=${4:-1} add=${5:-}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp -r "$3" "$dir/in"
library=$dir/inject.so
ln -s "$(realpath "$2")" "$library"  # LD_PRELOAD's names have no spaces
sum() { (cd "$1" && find . -type f -printf '%p %T@ %i\n' -exec sha256sum {} +) | sort | sha256sum; }
bytes() { (cd "$1" && find . -type f -exec sha256sum {} +) | sort | sha256sum; }
convert() { "$program" convert "$dir/in" "$dir/out" --backend marlin --engine vllm --threads 1 ${add:+--add} "$@"; }
state() { if [ -e "$dir/out" ]; then bytes "$dir/out"; fi; }
reset() {
  rm -rf "$dir/out"
  if [ "$add" ]; then "$program" convert "$dir/in" "$dir/out" --backend marlin --engine sglang --threads 1 -q; fi
}
inject() {
  INJECT_ROOT=$dir INJECT_CALL=$1 INJECT_FAULT=$2 INJECT_LOG=$dir/log LD_PRELOAD=$library convert "${@:3}" \
    >"$dir/stdout" 2>"$dir/stderr"
}
die() { echo "FAILED: $fault at call $call ($(cat "$dir/log")): $*"; sed 's/^/  /' "$dir/stderr"; exit 1; }

source=$(sum "$dir/in")
reset
before=$(state)
inject 0 EIO || { cat "$dir/stderr"; exit 1; }
read -r calls _ <"$dir/log"
expected=$(state)
if [ "$add" ]; then
  reset
  call=none fault=links
  INJECT_NO_LINKS=1 inject 0 EIO || die 'no fallback where links are refused'
  grep -q 'warning: .*refuses hard links.*copied' "$dir/stderr" || die 'no warning where links are refused'
  [ "$(state)" = "$expected" ] || die 'other bytes where links are refused'
fi
reset

declare -A cause=([ENOSPC]='No space left on device' [EIO]='Input/output error' [EDQUOT]='Disk quota exceeded')
faults=(ENOSPC EIO EDQUOT short EINTR)
tried=0 refused=0 survived=0

try() {
  inject "$call" "$fault"
  local code=$?
  tried=$((tried + 1))
  case $code in
    0)
      survived=$((survived + 1))
      [ "$(state)" = "$expected" ] || die 'success, but other bytes'
      ;;
    2)
      refused=$((refused + 1))
      [ "$fault" = short ] && die 'a short transfer is no error'
      [ "$fault" = EINTR ] || grep -q "error: .*: .*${cause[$fault]}" "$dir/stderr" || die 'no line names file and cause'
      now=$(state)
      [ "$now" = "$before" ] || [ "$now" = "$expected" ] || die 'OUT is there and not whole'
      [ "$now" = "$expected" ] || convert --resume -q 2>"$dir/stderr" || die 'resume failed'
      [ "$(state)" = "$expected" ] || die 'other bytes after --resume'
      ;;
    *) die "exit $code" ;;
  esac
  [ "$(sum "$dir/in")" = "$source" ] || die 'the checkpoint was touched'
  # what a crash after the rename leaves goes with the next run
  if [ -e "$dir/.out.mxfp4-pack.journal" ]; then convert --resume -q || die 'resume of a finished run failed'; fi
  [ "$(ls -A "$dir" | grep -c mxfp4-pack)" = 0 ] || die "left behind: $(ls -A "$dir")"
  reset
}

for ((call = 1; call <= calls; call += step)); do
  if [ "$step" -gt 1 ]; then
    fault=${faults[$((call / step % ${#faults[@]}))]}
    try
  else
    for fault in "${faults[@]}"; do try; done
  fi
done
[ $refused -gt 0 ] || { echo 'FAILED: no fault was noticed'; exit 1; }
echo "$calls calls, $tried faults: $refused refused and resumed, $survived without harm"
