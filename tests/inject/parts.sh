#!/usr/bin/env bash
# Fails each system call of a tiny convert --part, and of the merge, in turn.
# usage: parts.sh MXFP4-PACK INJECT-LIBRARY CKPT part|merge [STEP]
# STEP as in run.sh. A failed call must give exit 2 and a line that names the cause, or an honest success; OUT must be
# absent or whole, and after it the missing parts and a merge must end in the bytes of an undisturbed run.
set -u
program=$1 what=$4 step=${5:-1}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp -r "$3" "$dir/in"
library=$dir/inject.so
ln -s "$(realpath "$2")" "$library"  # LD_PRELOAD's names have no spaces
bytes() { (cd "$1" && find . -type f -exec sha256sum {} +) | sort | sha256sum; }
part() { "$program" convert "$dir/in" "$dir/out" --backend marlin --engine vllm --link none --threads 1 --part "$1/2"; }
merge() { "$program" merge "$dir/out" --threads 1 "$@"; }
reset() {
  rm -rf "$dir/out" "$dir"/.out.*
  [ "$what" = part ] || { part 0 && part 1; } 2>/dev/null
}
work() { if [ "$what" = part ]; then part 0; else merge; fi; }
inject() {
  INJECT_ROOT=$dir INJECT_CALL=$1 INJECT_FAULT=$2 INJECT_LOG=$dir/log LD_PRELOAD=$library work >"$dir/stdout" 2>"$dir/stderr"
}
die() { echo "FAILED: $fault at call $call ($(cat "$dir/log")): $*"; sed 's/^/  /' "$dir/stderr"; exit 1; }
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

"$program" convert "$dir/in" "$dir/single" --backend marlin --engine vllm --link none --threads 1 -q || exit 1
expected=$(bytes "$dir/single")
rm -r "$dir/single"
reset
inject 0 EIO || { cat "$dir/stderr"; exit 1; }
read -r calls _ <"$dir/log"
reset

declare -A cause=([ENOSPC]='No space left on device' [EIO]='Input/output error' [EDQUOT]='Disk quota exceeded')
faults=(ENOSPC EIO EDQUOT short EINTR)
tried=0 refused=0 survived=0
try() {
  inject "$call" "$fault"
  local code=$?
  tried=$((tried + 1))
  case $code in
    0) survived=$((survived + 1)) ;;
    2)
      refused=$((refused + 1))
      [ "$fault" = short ] && die 'a short transfer is no error'
      [ "$fault" = EINTR ] || grep -q "error: .*: .*${cause[$fault]}" "$dir/stderr" || die 'no line names file and cause'
      ;;
    *) die "exit $code" ;;
  esac
  [ ! -e "$dir/out" ] || [ "$(bytes "$dir/out")" = "$expected" ] || die 'OUT is there and not whole'
  finish || die 'the merge after it'
  [ "$(bytes "$dir/out")" = "$expected" ] || die 'other bytes than an undisturbed run'
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
echo "$what: $calls calls, $tried faults: $refused refused, $survived without harm"
