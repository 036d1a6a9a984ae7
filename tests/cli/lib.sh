# Common to the tests of the command line. A test is called as TEST.sh MXFP4-PACK SOURCE-DIR, begins with
#   . "$(dirname "$0")/lib.sh"
# and ends with `finish`. It needs no other test: all that it writes lies in a fresh folder, $dir.
# MXFP4_TEST_VERBOSE=1 also prints the name of every check that passed.
set -u
[ $# -ge 2 ] || { echo "usage: $0 MXFP4-PACK SOURCE-DIR"; exit 2; }
program=$(realpath "$1") root=$(realpath "$2")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0
tiny=$root/testdata/tiny/gpt-oss
unset "${!MXFP4_PACK_@}"
export MXFP4_PACK_DEVICE=cpu  # the same messages wherever the tests run
export XDG_CACHE_HOME=$dir/cache

# expect NAME EXIT-CODE STDOUT-PATTERN STDERR-PATTERN COMMAND...: patterns are grep -E, '' means nothing may be printed
expect() {
  local name=$1 code=$2 out=$3 err=$4
  shift 4
  "$@" >"$dir/out.txt" 2>"$dir/err.txt"
  local got=$?
  if [ $got -eq "$code" ] && matches "$dir/out.txt" "$out" && matches "$dir/err.txt" "$err"; then
    passed=$((passed + 1))
    [ -z "${MXFP4_TEST_VERBOSE:-}" ] || echo "ok: $name"
  else
    failed=$((failed + 1))
    echo "FAILED: $name: exit $got, $code expected"
    sed 's/^/  stdout: /' "$dir/out.txt" | head -n 20
    sed 's/^/  stderr: /' "$dir/err.txt" | head -n 20
  fi
}
matches() { if [ -z "$2" ]; then [ ! -s "$1" ]; else grep -qE -- "$2" "$1"; fi; }

# Every subcommand, by the help.
commands() { "$program" --help | sed -n '/^Commands:/,/^$/p' | awk '/^  [a-z]/ {print $1}'; }

# What a test needs before it can check anything; its failure ends the test.
prepare() { "$@" || { echo "FAILED: cannot prepare: $*"; exit 1; }; }
convert() { prepare "$program" convert "$@" --no-loader -q; }  # whatever is to be looked at
synth() { prepare "$program" synth "$@" -q; }
skip() { echo "skipped: $*"; exit 77; }
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
  "$@" >"$dir/quiet.txt" 2>&1 && return
  cat "$dir/quiet.txt"
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

# put FILE OFFSET BYTE: one byte, as printf writes it (\377)
put() { printf '%b' "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
# put_last FILE BYTE
put_last() { put "$1" $(($(stat -c %s "$1") - 1)) "$2"; }

finish() {
  echo "$passed passed, $failed failed"
  [ $failed -eq 0 ] && [ $passed -gt 0 ]
  exit
}
