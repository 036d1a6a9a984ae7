#!/usr/bin/env bash
# Help, on terminals of 40, 80 and 120 columns too, and the version. usage: help.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

commands=$(commands)
prepare [ -n "$commands" ]

test_contents() {
  expect 'help has examples' 0 '^  mxfp4-pack convert ' '' "$program" --help
  expect 'help lists commands' 0 '^  verify +Check an output$' '' "$program" --help
  expect 'help of a command' 0 '^What becomes of OUT:$' '' "$program" help convert
  expect 'and by its option' 0 '^  -q, --quiet +Print only problems' '' "$program" convert --help
  expect 'defaults and variables' 0 'default: 0\] \[env:' '' "$program" convert --help
  expect 'a default of several values' 0 'default: 1,16,256\]' '' "$program" verify --help
  expect 'version' 0 '^mxfp4-pack [0-9]+\.[0-9]+' '' "$program" --version
  expect 'version, short' 0 '^mxfp4-pack [0-9]+\.[0-9]+' '' "$program" -V
  released=$(sed -n 's/^## \([0-9][0-9a-z.-]*\) .*/\1/p' "$root/CHANGELOG.md" | head -n 1)
  expect "the version is CHANGELOG's last" 0 "^mxfp4-pack ${released//./\\.}\$" '' "$program" --version
  expect 'version as JSON' 0 '^\{"version":"[0-9].*"drivers":\["?.*"driver":".*"cuda":"' '' "$program" --version --json
  expect 'version says which drivers are in' 0 '^CPU drivers .*tables; here [a-z0-9]+$' '' "$program" --version
  expect 'version says what there is of CUDA' 0 'CUDA' '' "$program" --version
}
test_width() {
  for columns in 40 80 120; do
    for command in '' $commands; do
      expect "help $command fits $columns columns" 0 '^Usage:$' '' fits $columns "$program" $command --help
    done
  done
}
test_unknown_command() {
  expect 'help of no command' 2 '' "error: no command 'convrt'; did you mean convert\? See mxfp4-pack --help" "$program" help convrt
  expect 'and by its option' 2 '' "error: no command 'convrt'; did you mean convert\?" "$program" convrt --help
  expect 'help of help' 0 '^Commands:$' '' "$program" help help
}
test_colour() {
  expect 'headings are bold on a terminal' 0 $'\x1b\\[1mUsage' '' at 80 "$program" --help
  expect 'not where NO_COLOR is set' 0 '^Usage:' '' env NO_COLOR=1 python3 "$root/tests/cli/terminal.py" 80 "$program" --help
  expect 'not in a pipe' 0 '^Usage:' '' "$program" --help
  expect 'but where CLICOLOR_FORCE is set' 0 $'\x1b\\[1mUsage' '' env CLICOLOR_FORCE=1 "$program" --help
  expect 'not where it is 0' 0 '^Usage:' '' env CLICOLOR_FORCE=0 "$program" --help
  expect 'not beside NO_COLOR' 0 '^Usage:' '' env CLICOLOR_FORCE=1 NO_COLOR=1 "$program" --help
}
run_cases
