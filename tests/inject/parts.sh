#!/usr/bin/env bash
# Fails each system call of a tiny convert --part, and of the merge, in turn.
# usage: parts.sh MXFP4-PACK INJECT-LIBRARY CKPT part|merge [STEP]
# STEP n (default 1: every call): see lib.sh. OUT must be absent or whole, and after it the missing parts and a merge
# must end in the bytes of an undisturbed run.
. "$(dirname "$0")/lib.sh"
what=$4 step=${5:-1}
options=(--backend marlin --engine vllm --link --threads 1)
convert() { "$program" convert "$dir/in" "$@" "${options[@]}"; }
part() { convert "$dir/out" --part "$1/2"; }
merge() { "$program" merge "$dir/out" --threads 1 "$@"; }
work() { if [ "$what" = part ]; then part 0; else merge; fi; }
reset() {
  rm -rf "$dir/out" "$dir"/.out.*
  [ "$what" = part ] || { part 0 && part 1; } 2>/dev/null
}
# What a user does next: the parts that are missing, and a merge. A merge that failed has lost none.
finish() {
  local again code
  for again in 1 2 3; do
    merge -q >"$dir/stdout" 2>"$dir/stderr" && return
    code=$?
    [ "$what" = part ] || [ $code != 1 ] || return 1
    part 0 2>"$dir/stderr" && part 1 2>"$dir/stderr" || return
  done
  return 1
}
check() {
  [ ! -e "$dir/out" ] || [ "$(bytes "$dir/out")" = "$expected" ] || die 'OUT is there and not whole'
  finish || die 'the merge after it'
  [ "$(bytes "$dir/out")" = "$expected" ] || die 'other bytes than an undisturbed run'
}

convert "$dir/single" -q || exit 1
expected=$(bytes "$dir/single")
rm -r "$dir/single"
reset
run_undisturbed
reset
try_all "$step"
