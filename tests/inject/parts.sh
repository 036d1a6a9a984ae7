#!/usr/bin/env bash
# Fails each system call of a tiny convert --part, or unpack --part, and of the merge, in turn.
# usage: parts.sh MXFP4-PACK INJECT-LIBRARY CKPT part|merge|unpack-part|unpack-merge [STEP]
# STEP n (default 1: every call): see lib.sh. OUT must be absent or whole, and after it the missing parts and a merge
# must end in the bytes of an undisturbed run.
. "$(dirname "$0")/lib.sh"
form=$4 what=${4#unpack-} step=${5:-1}
options=(--backend marlin --engine vllm --link --threads 1)
convert() { "$program" convert "$dir/in" "$@" "${options[@]}"; }
if [ "$what" = "$form" ]; then
  part() { convert "$dir/out" --part "$1/2"; }
else
  packed=$(mktemp -d)  # reading it does not fail
  trap 'rm -rf "$dir" "$packed"' EXIT
  convert "$packed/out" -q || exit 1
  part() { "$program" unpack "$packed/out" "$dir/out" --threads 1 --part "$1/2"; }
fi
source=()
[ "$what" = "$form" ] || source=(--source "$packed/out")
merge() { "$program" merge "$dir/out" --threads 1 "${source[@]}" "$@"; }
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

if [ "$what" = "$form" ]; then
  convert "$dir/single" -q || exit 1
  expected=$(bytes "$dir/single")
  rm -r "$dir/single"
else
  expected=$(bytes "$dir/in")
fi
reset
run_undisturbed
reset
try_all "$step"
