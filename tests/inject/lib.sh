# Common to the scripts of this folder: fails each system call of one command in turn. A script is called as
# SCRIPT MXFP4-PACK INJECT-LIBRARY CKPT .., includes this file, defines
#   work          the command, which gets the arguments of `inject` from the third on
#   reset         prepares the state before the command
#   check CODE    checks the state after the command, or calls `die`
# and ends with `try_all STEP`: every STEP-th call, each with the next of the faults; 1 takes all faults at each.
# A failed call must give exit 2 and a line that names the cause, or an honest success, and nothing may stay beside OUT
# after check.
set -u
program=$1
dir=$(mktemp -d)
export XDG_CACHE_HOME=$dir/cache
trap 'rm -rf "$dir"' EXIT
cp -r "$3" "$dir/in"
library=$dir/inject.so
ln -s "$(realpath "$2")" "$library"  # LD_PRELOAD's names have no spaces

# The run file stays until the run has ended.
bytes() { (cd "$1" && find . -type f ! -name .mxfp4-pack-run -exec sha256sum {} +) | sort | sha256sum; }
inject() {
  INJECT_ROOT=$dir INJECT_CALL=$1 INJECT_FAULT=$2 INJECT_LOG=$dir/log LD_PRELOAD=$library work "${@:3}" \
    >"$dir/stdout" 2>"$dir/stderr"
}
die() { echo "FAILED: $fault at call $call ($(cat "$dir/log")): $*"; sed 's/^/  /' "$dir/stderr"; exit 1; }
# run_undisturbed: and counts the calls
run_undisturbed() {
  inject 0 EIO || { cat "$dir/stderr"; exit 1; }
  read -r calls _ <"$dir/log"
}

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
  check $code
  [ "$(ls -A "$dir" "$dir"/*/ | grep -c '^\.')" = 0 ] || die "left behind: $(ls -A "$dir" "$dir"/*/)"
  reset
}
try_all() {
  for ((call = 1; call <= calls; call += $1)); do
    if [ "$1" -gt 1 ]; then
      fault=${faults[$((call / $1 % ${#faults[@]}))]}
      try
    else
      for fault in "${faults[@]}"; do try; done
    fi
  done
  [ $refused -gt 0 ] || { echo 'FAILED: no fault was noticed'; exit 1; }
  echo "$calls calls, $tried faults: $refused refused, $survived without harm"
}
