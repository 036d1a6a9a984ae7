#!/usr/bin/env bash
# Kills convert --part and merge at random moments. usage: parts.sh MXFP4-PACK CKPT COUNT [WORK-DIR]
# CKPT is converted as 3 parts with --link. Each kill is of a random part's run or of a merge, and sometimes two runs go at once.
# OUT must be absent or whole at every moment; in the end the parts that merge calls missing are written, and a merge,
# or now and then a single convert, gives the bytes of an undisturbed run and leaves nothing beside it.
. "$(dirname "$0")/lib.sh"
options+=(--link)
run_undisturbed

# start: a part's run, or a merge, in the background
start() {
  case $((RANDOM % 4)) in
    3) exec "$program" merge "$out" -q ;;
    *) exec "$program" convert "$checkpoint" "$out" "${options[@]}" --part $((RANDOM % 3))/3 -q ;;
  esac >/dev/null 2>&1 &
}
write_missing() {
  local part missing code
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
finish() {
  if [ $((RANDOM % 4)) = 0 ] && [ ! -e "$out" ]; then
    find "$dir" '(' -name '.*-of-3.*' -o -path '*/.*-of-3.*/journal' ')' -exec touch -h -d '1 hour ago' {} +  # what the killed left is in nobody's use
    convert "$out" -q 2>"$dir/err" || die "a single run: $(cat "$dir/err")"
    resumed=$((resumed + 1))
  else
    write_missing
  fi
}

refilled=0 resumed=0 ends=0
while [ $kills -lt "$count" ]; do
  start
  first=$!
  second=
  if [ $((RANDOM % 3)) = 0 ]; then
    start
    second=$!
  fi
  kill_within $((micros >> RANDOM % 6)) $first  # most runs are much shorter than a whole one
  [ -z "$second" ] || wait "$second" 2>/dev/null
  is_absent_or_whole
  if [ $((RANDOM % 4)) = 0 ] || [ -e "$out" ]; then
    finish
    ends=$((ends + 1))
    is_whole 'other bytes than an undisturbed run'
    "$program" merge "$out" -q || die 'a second merge'
    is_alone
    rm -r "$out"
  fi
done
[ $killed -gt 0 ] && [ $ends -gt 0 ] || { echo "FAILED: $killed of $kills were killed, $ends ends"; exit 1; }
echo "$kills kills, $killed of running processes; $ends outputs, $resumed by a single run, $refilled parts written again;" \
  "a whole run: $((micros / 1000)) ms"
