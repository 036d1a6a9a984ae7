#!/usr/bin/env bash
# Every option of every help text stands in the man page and in the completions of three shells. usage: documented.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

commands=$("$program" --help | sed -n '/^Subcommands:/,$p' | awk '/^  [a-z]/ {print $1}')
prepare [ -n "$commands" ]
has_option() { grep -E -- "(--|-l )${1#--}([^a-z-]|$)" "$root/src/completions/$2"; }

for command in '' $commands; do
  help=$("$program" $command --help)
  for option in $(grep -oE '^ +(-[a-z],)?--?[a-z-]+' <<<"$help" | grep -oE -- '-[a-z-]+' | sort -u); do
    expect "man page has '$command' $option" 0 . '' grep -F -- "Fl ${option#-}" "$root/man/mxfp4-pack.1"
  done
  for option in $(grep -oE -- '--[a-z][a-z0-9-]+' <<<"$help" | sort -u); do
    for shell in mxfp4-pack.bash _mxfp4-pack mxfp4-pack.fish; do
      expect "$shell has '$command' $option" 0 . '' has_option "$option" "$shell"
    done
  done
  [ -n "$command" ] && expect "man page has $command" 0 . '' grep -F ".It Cm $command" "$root/man/mxfp4-pack.1"
done

gpus=$("$program" convert "$tiny" "$dir/auto" --backend auto --engine vllm --gpu none 2>&1 |
  sed 's/.*not one of //; s/; see.*//; s/[(),]//g')
prepare [ -n "$gpus" ]
for gpu in $gpus; do
  expect "man page has --gpu $gpu" 0 . '' grep -E -- "^\.(Cm|It Fl -gpu Cm).* $gpu( |$)" "$root/man/mxfp4-pack.1"
done
finish
