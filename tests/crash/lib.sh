# Common to the scripts of this folder that kill at random moments; called as SCRIPT MXFP4-PACK CKPT COUNT [WORK-DIR].
# OUT, which is $out, must be absent or whole at every moment.
set -u
program=$1 checkpoint=$2 count=$3
dir=$(mktemp -d -p "${4:-${TMPDIR:-/tmp}}")
export XDG_CACHE_HOME= HOME=
trap 'rm -rf "$dir"' EXIT
out=$dir/out kills=0 killed=0
options=(--backend marlin --engine vllm)

convert() { "$program" convert "$checkpoint" "$1" "${options[@]}" "${@:2}"; }
# The run file stays until the run has ended.
sum() { (cd "$1" && find . -type f ! -name .mxfp4-pack-run -print0 | sort -z | xargs -0 sha256sum) | sha256sum; }
die() { echo "FAILED: kill $kills: $*"; exit 1; }
is_whole() { [ "$(sum "$out")" = "$expected" ] || die "$1"; }
is_alone() {
  [ "$(ls -A "$dir" | grep -v '^err$')" = out ] || die "left behind: $(ls -A "$dir")"
  [ ! -e "$out/.mxfp4-pack-run" ] || die 'the run file is left'
}
# kill_within MICROSECONDS PROCESS
kill_within() {
  local wait=$(((RANDOM * 32768 + RANDOM) % ($1 + 1)))
  sleep "$((wait / 1000000)).$(printf %06d $((wait % 1000000)))"
  kill -KILL "$2" 2>/dev/null && killed=$((killed + 1))
  wait "$2" 2>/dev/null
  kills=$((kills + 1))
}
is_absent_or_whole() { [ ! -e "$out" ] || is_whole 'OUT is there and not whole'; }

# run_undisturbed: gives the bytes to be had in the end ($expected) and how long it takes ($micros)
run_undisturbed() {
  local begun
  begun=$(date +%s%N)
  convert "$dir/whole" -q || exit 1
  micros=$((($(date +%s%N) - begun) / 1000))
  expected=$(sum "$dir/whole")
  rm -r "$dir/whole"
}
