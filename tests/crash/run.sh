#!/usr/bin/env bash
# Kills convert at random moments. usage: run.sh MXFP4-PACK CKPT COUNT [WORK-DIR]
# A kill at a random moment of the time that a whole run takes, then the same command until it ends, each time killed
# again with probability one half. OUT must be absent or whole at every moment, and in the end have the bytes of an
# undisturbed run; the last must keep every job that the journal names. Long form: tests/crash/long.sh.
. "$(dirname "$0")/lib.sh"
run_undisturbed

# A process killed after between 0 and 1.1 times the duration of a whole run.
killed_run() {
  "$program" convert "$checkpoint" "$out" "${options[@]}" >/dev/null 2>"$dir/err" &
  kill_within $((micros * 11 / 10)) $!
  is_absent_or_whole
}

midway=0 resumed=0  # on a busy machine more kills are needed until one comes while jobs are done
for ((i = 1; kills < count || (resumed == 0 && kills < 20 * count); ++i)); do
  killed_run
  while [ ! -e "$out" ] && [ $((RANDOM % 2)) = 0 ]; do killed_run; done
  jobs=0
  if [ -e "$dir/.out.mxfp4-pack/journal" ] && [ ! -e "$out" ]; then
    midway=$((midway + 1))
    jobs=$(grep -c '^[0-9]' "$dir/.out.mxfp4-pack/journal")
  fi
  if [ -e "$out" ] && [ ! -e "$dir/.out.mxfp4-pack" ]; then :; else
    convert "$out" >/dev/null 2>"$dir/err" || die "the same command failed: $(cat "$dir/err")"
    if [ $jobs -gt 0 ]; then
      grep -q ": $jobs of [0-9]* steps are done already" "$dir/err" || die "$jobs jobs in the journal: $(cat "$dir/err")"
      resumed=$((resumed + 1))
    fi
  fi
  is_whole 'other bytes than an undisturbed run'
  is_alone
  rm -r "$out"
done
[ $resumed -gt 0 ] || { echo "FAILED: no kill came while jobs were done"; exit 1; }
echo "$kills kills, $midway of $((i - 1)) runs cut short, $resumed resumed from finished jobs; a whole run: $((micros / 1000)) ms"
