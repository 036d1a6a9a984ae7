#!/usr/bin/env bash
# Fails each system call of a tiny convert in turn. usage: run.sh MXFP4-PACK INJECT-LIBRARY CKPT [STEP [add]]
# STEP n (default 1: every call): see lib.sh. OUT must be as before unless it is whole, the checkpoint must be
# untouched, and the same command must end in the bytes of an undisturbed run.
# add: the convert is one with --add, and OUT has a set before.
. "$(dirname "$0")/lib.sh"
step=${4:-1} add=${5:-}
sum() { (cd "$1" && find . -type f -printf '%p %T@ %i\n' -exec sha256sum {} +) | sort | sha256sum; }
work() { "$program" convert "$dir/in" "$dir/out" --backend marlin --engine vllm --threads 1 ${add:+--add} "$@"; }
state() { if [ -e "$dir/out" ]; then bytes "$dir/out"; fi; }
reset() {
  rm -rf "$dir/out"
  if [ "$add" ]; then "$program" convert "$dir/in" "$dir/out" --backend marlin --engine sglang --threads 1 -q; fi
}
check() {
  local now
  now=$(state)
  if [ "$1" = 0 ]; then
    [ "$now" = "$expected" ] || die 'success, but other bytes'
  else
    [ "$now" = "$before" ] || [ "$now" = "$expected" ] || die 'OUT is there and not whole'
    [ "$now" = "$expected" ] || work -q 2>"$dir/stderr" || die 'the same command failed'
    [ "$(state)" = "$expected" ] || die 'other bytes after the same command'
  fi
  [ "$(sum "$dir/in")" = "$source" ] || die 'the checkpoint was touched'
  # what a crash after the rename leaves goes with the next run
  if [ -e "$dir/.out.mxfp4-pack" ]; then work -q || die 'the same command failed after a finished run'; fi
}

source=$(sum "$dir/in")
reset
before=$(state)
run_undisturbed
expected=$(state)
if [ "$add" ]; then
  reset
  call=none fault=links
  INJECT_NO_LINKS=1 inject 0 EIO || die 'no fallback where links are refused'
  grep -q 'warning: .*cannot be hard-linked.*copied' "$dir/stderr" || die 'no warning where links are refused'
  [ "$(state)" = "$expected" ] || die 'other bytes where links are refused'
fi
reset
try_all "$step"
