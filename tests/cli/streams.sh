#!/usr/bin/env bash
# Standard streams that are closed or full. usage: streams.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

marlin() { "$program" convert "$tiny" "$dir/$1" --backend marlin --engine vllm "${@:2}"; }
convert "$tiny" "$once/right" --backend marlin --engine vllm
same() { diff -r "$once/right" "$dir/$1"; }

test_stderr() {
  no_stderr() { marlin no-stderr 2>&-; }
  expect 'stderr closed: done all the same' 0 '' '' no_stderr
  expect 'stderr closed: every byte' 0 '' '' same no-stderr
  full_stderr() { marlin full-stderr 2>/dev/full; }
  expect 'stderr full: done all the same' 0 '' '' full_stderr
  expect 'stderr full: every byte' 0 '' '' same full-stderr
  error_without_stderr() { "$program" verify "$dir/nowhere" 2>&-; }
  expect 'an error without stderr' 2 '' '' error_without_stderr
  no_streams() { marlin none <&- >&- 2>&-; }
  expect 'no streams at all: done' 0 '' '' no_streams
  expect 'no streams at all: every byte' 0 '' '' same none
}
test_stdout() {
  full_stdout() { marlin full-stdout --json -q >/dev/full; }
  expect 'stdout full: it is said' 2 '' 'cannot write to standard output: No space left' full_stdout
  expect 'stdout full: what was done stays' 0 '' '' same full-stdout
  no_stdout() { "$program" verify "$once/right" >&-; }
  expect 'a verdict without stdout' 2 '' 'cannot write to standard output: Bad file' no_stdout
  silent() { marlin silent -q >&-; }
  expect 'no stdout where nothing is printed' 0 '' '' silent
  reader_is_gone() { { sleep 0.2; "$program" verify "$once/right"; } > >(exec true); }
  expect 'a pipe that nobody reads' 2 '' 'cannot write to standard output: Broken pipe' reader_is_gone
  help_to_full() { "$program" --help >/dev/full; }
  expect 'help' 2 '' 'cannot write to standard output' help_to_full
}
run_cases
