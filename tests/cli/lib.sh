# Common to the tests of the command line. A test is called as TEST.sh MXFP4-PACK SOURCE-DIR [CASE..]; it begins with
#   . "$(dirname "$0")/lib.sh"
# and ends with `run_cases`. A case is a function test_CASE: it runs in a subshell and in a fresh folder, $dir, and needs no
# other case. What cases only read may be made once, in $once, before run_cases.
# MXFP4_TEST_VERBOSE=1 also prints the name of every check that passed.
set -u
[ $# -ge 2 ] || { echo "usage: $0 MXFP4-PACK SOURCE-DIR [CASE..]"; exit 2; }
program=$(realpath "$1") root=$(realpath "$2")
script=$(realpath "$0") cases=("${@:3}")
once=$(mktemp -d)
dir=$once
trap 'rm -rf "$once"' EXIT
passed=0 failed=0 running=
tiny=$root/testdata/tiny/gpt-oss
unset "${!MXFP4_PACK_@}"
export MXFP4_PACK_DEVICE=cpu  # the same messages wherever the tests run
export XDG_CACHE_HOME=$once/cache
stdout=$once/stdout.txt stderr=$once/stderr.txt  # of the last command that was checked

# expect NAME EXIT-CODE STDOUT-PATTERN STDERR-PATTERN COMMAND...: patterns are grep -E, '' means nothing may be printed
expect() {
  local name=$1 code=$2 out=$3 err=$4
  shift 4
  "$@" >"$stdout" 2>"$stderr"
  local got=$?
  if [ $got -eq "$code" ] && matches "$stdout" "$out" && matches "$stderr" "$err"; then
    pass "$name"
  else
    fail "$name: exit $got, $code expected"
  fi
}
matches() { if [ -z "$2" ]; then [ ! -s "$1" ]; else grep -qE -- "$2" "$1"; fi; }
# also PATTERN [LINES]: the command of the last `expect` printed lines that match, this number of them
also() {
  local found
  found=$(cat "$stdout" "$stderr" | grep -cE -- "$1")
  if [ "$found" -ge 1 ] && [ $# = 1 ] || [ "$found" = "${2:-}" ]; then pass "$1"; else fail "$found lines match '$1'"; fi
}
# nothing PATH..: none of these exists
nothing() {
  local path
  for path; do if [ -e "$path" ] || [ -L "$path" ]; then fail "$path exists"; else pass "no $path"; fi; done
}
pass() {
  passed=$((passed + 1))
  [ -z "${MXFP4_TEST_VERBOSE:-}" ] || echo "ok: $1"
}
fail() {
  failed=$((failed + 1))
  echo "FAILED: ${running:+$running: }$1"
  sed 's/^/  stdout: /' "$stdout" | head -n 20
  sed 's/^/  stderr: /' "$stderr" | head -n 20
}

# Every subcommand, by the help.
commands() { "$program" --help | sed -n '/^Commands:/,/^$/p' | awk '/^  [a-z]/ {print $1}'; }

# What a test needs before it can check anything; its failure ends the case.
prepare() { "$@" || { echo "FAILED: ${running:+$running: }cannot prepare: $*"; exit 1; }; }
convert() { prepare "$program" convert "$@" --no-loader -q; }  # whatever is to be looked at
# The newest release of vLLM that the program knows. Tests do not spell it.
newest() { "$program" backends --engine vllm==? 2>&1 | sed -n 's/.*vllm==\([0-9.]*\) for example.*/\1/p'; }
synth() { prepare "$program" synth "$@" -q; }
skip() { echo "skipped: ${running:+$running: }$*" && [ $failed -eq 0 ] && exit 77 || exit 1; }
# Whether the program has sanitizers, which take memory of their own.
is_sanitized() { ldd "$program" 2>/dev/null | grep -q 'lib[a-z]*san\.so'; }

# at COLUMNS COMMAND..: the command's output on a terminal of that width
at() { python3 "$root/tests/cli/terminal.py" "$@"; }
# fits COLUMNS COMMAND..: prints the final content of the terminal, or the lines that are too wide, except lines of one
# long word and commands to copy
fits() {
  at "$@" | sed 's/\r$//; s/.*\x1b\[K//; s/\x1b\[[0-9;]*m//g' |
    awk -v columns="$1" '
      length($0) > columns && NF > 1 && !/^ *(serve +)?.?(mxfp4-pack|vllm|sglang|hf) [a-z]/ {print; wide = 1}
      {all = all $0 "\n"}
      END {if (!wide) printf "%s", all; exit wide}'
}

# quiet COMMAND..: prints the command's output only if it fails
quiet() {
  "$@" >"$once/quiet.txt" 2>&1 && return
  cat "$once/quiet.txt"
  return 1
}
# go_on PROCESS FILE: continues a stopped run to its end; returns its exit code and copies its messages in FILE to
# stderr
go_on() {
  kill -CONT "$1"
  wait "$1"
  local code=$?
  cat "$2" >&2
  return $code
}

# has_a_job OUT: the journal of a run that writes OUT has a finished step
has_a_job() { { read -r && read -r; } <"${1%"${1##*/}"}.${1##*/}.mxfp4-pack/journal"; } 2>/dev/null
# to_first_job START OUT COMMAND..: begins a run that makes OUT, and waits until a step is done or it ends; $pid is its
# process. START makes what is there before.
to_first_job() {
  rm -rf "$2" "${2%"${2##*/}"}.${2##*/}.mxfp4-pack" && $1
  "${@:3}" 2>"$once/said" &
  pid=$!
  until has_a_job "$2" || ! kill -0 $pid; do :; done
} 2>/dev/null
# killed_run START OUT FILE COMMAND..: the same run, killed when a step is done; again if FILE is there already
killed_run() {
  local try pid
  for try in $(seq 200); do
    to_first_job "$1" "$2" "${@:4}"
    kill -KILL $pid
    wait $pid
    has_a_job "$2" && [ ! -e "$3" ] && return
  done
  return 1
} 2>/dev/null

# put FILE OFFSET BYTE: one byte, as printf writes it (\377)
put() { printf '%b' "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
# put_last FILE BYTE
put_last() { put "$1" $(($(stat -c %s "$1") - 1)) "$2"; }

# Ends a test that is one story, whose steps build on one another.
finish() {
  echo "$passed checks passed, $failed failed"
  [ $failed -eq 0 ] && [ $passed -gt 0 ]
  exit
}
# Runs every case of the test, in their order, or those that the command line names.
run_cases() {
  local failures=() skipped=0
  [ ${#cases[@]} -gt 0 ] || mapfile -t cases < <(sed -n 's/^test_\([a-z0-9_]*\)().*/\1/p' "$script")
  for running in "${cases[@]}"; do
    dir=$once/case-$running
    mkdir "$dir"
    (run_case)
    case $? in 0) ;; 77) skipped=$((skipped + 1)) ;; *) failures+=("$running") ;; esac
    rm -rf "$dir"
  done
  echo "${#cases[@]} cases, $(cat "$once/passed" 2>/dev/null | wc -l) checks passed, $skipped cases skipped"
  [ ${#failures[@]} -eq 0 ] || { echo "FAILED: ${failures[*]}; to run one: $script $program $root ${failures[0]}" && exit 1; }
  [ ${#cases[@]} -gt 0 ] && [ $skipped -eq ${#cases[@]} ] && exit 77
  [ -s "$once/passed" ]
  exit
}
run_case() {
  cd "$dir" || exit
  declare -F "test_$running" >/dev/null || prepare false "no such case"
  "test_$running"
  seq $passed >>"$once/passed"
  [ $failed -eq 0 ] && { [ $passed -gt 0 ] || prepare false "nothing was checked"; }
}
