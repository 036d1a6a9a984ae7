#!/usr/bin/env bash
# The completions give every option of every help text; the man page has commands and GPUs (options: cli-manual). usage: documented.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

commands=$(commands)
prepare [ -n "$commands" ]
. "$root/src/completions/mxfp4-pack.bash"
# What bash completes the last of the words to, each on a line.
complete_words() {
  COMP_WORDS=("$program" "$@") COMP_CWORD=$# COMPREPLY=()
  _mxfp4_pack
  printf '%s\n' "${COMPREPLY[@]}"
}
# The same with fish and zsh, if they are installed.
complete_in_fish() { PATH="$(dirname "$program"):$PATH" fish -c "source '$root/src/completions/mxfp4-pack.fish'; complete -C 'mxfp4-pack $*'"; }

complete_in_zsh() {
  zsh -fc 'compadd() { print -l -- $found }; compset() { PREFIX=${PREFIX#*=} }; _files() { print files }
    words=("$@") CURRENT=$# PREFIX=${@[-1]}; . $0' "$root/src/completions/_mxfp4-pack" "$program" "$@"
}
test_options() {
  for command in '' $commands; do
    help=$("$program" $command --help)
    for option in $(grep -oE -- '--[a-z][a-z0-9-]+' <<<"$help" | sort -u); do
      [ -n "$command" ] || continue
      expect "bash completes '$command' $option" 0 "^$option\$" '' complete_words "$command" "$option"
    done
    [ -n "$command" ] && expect "man page has $command" 0 . '' grep -E "^\.Ss $command( |$)" "$root/man/mxfp4-pack.1"
  done
}
test_bash() {
  expect 'bash completes commands' 0 '^convert$' '' complete_words con
  expect 'bash completes values' 0 '^sglang$' '' complete_words convert --engine s
  expect 'bash completes backends' 0 '^deepgemm-mega$' '' complete_words convert --backend deep
  expect 'bash completes auto' 0 '^auto$' '' complete_words convert --backend a
  expect 'bash completes --opt=value' 0 '^sglang$' '' complete_words convert --engine = s
  placeholders() { complete_words convert "$1" '' | grep '[A-Z]'; }
  expect 'bash completes no placeholder of --part' 1 '' '' placeholders --part
  expect 'bash completes models' 0 '^kimi-k3$' '' complete_words synth kim
  expect 'bash completes GPUs' 0 '^rtx4090$' '' complete_words convert --gpu rtx4
  expect 'bash completes architectures' 0 '^gfx950$' '' complete_words backends --gpu gfx95
  expect 'bash completes commands of help' 0 '^convert$' '' complete_words help con
}
test_fish_and_zsh() {
  command -v fish zsh >/dev/null || skip "no fish or zsh"
  if command -v fish >/dev/null; then
    expect 'fish completes commands' 0 '^convert' '' complete_in_fish con
    expect 'fish completes options' 0 '^--layout-version' '' complete_in_fish 'convert --lay'
    expect 'fish completes values' 0 '^sglang' '' complete_in_fish 'convert --engine s'
    expect 'fish completes --opt=value' 0 '^--backend=auto' '' complete_in_fish 'convert --backend=a'
    expect 'fish completes --opt=FILE' 0 '^--published=README.md' '' eval "cd '$root' && complete_in_fish 'convert --published=READ'"
  fi
  if command -v zsh >/dev/null; then
    expect 'zsh completes commands' 0 '^convert$' '' complete_in_zsh con
    expect 'zsh completes options' 0 '^--layout-version$' '' complete_in_zsh convert --lay
    expect 'zsh completes values' 0 '^sglang$' '' complete_in_zsh convert --engine s
    expect 'zsh completes --opt=value' 0 '^auto$' '' complete_in_zsh convert --backend=a
    expect 'zsh completes files' 0 '^files$' '' complete_in_zsh diff o
  fi
}
test_pages() {
  for page in "$root"/man/*.[1-8]; do
    name=${page##*/}
    expect "$name is installed" 0 . '' grep -wF "$name" "$root/src/install.cmake"
    while read -r other section; do
      expect "$name refers to $other($section)" 0 . '' grep -F ".Dt ${other^^} $section" "$root/man/$other.$section"
    done < <(sed -n 's/^\.Xr \(mxfp4-pack[a-z-]*\) \([1-8]\).*/\1 \2/p' "$page" | sort -u)
  done
}
test_gpus() {
  gpus=$("$program" convert "$tiny" "$dir/auto" --backend auto --engine vllm --gpu none 2>&1 |
    sed 's/.*not one of //; s/; see.*//; s/[(),]//g')
  prepare [ -n "$gpus" ]
  for gpu in $gpus; do
    expect "man page has --gpu $gpu" 0 . '' grep -E -- "^\.(Cm|It Fl -gpu Cm).* $gpu( |$)" "$root/man/mxfp4-pack.1"
  done
}
run_cases
