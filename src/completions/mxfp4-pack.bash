# bash completion of mxfp4-pack: commands, options and their values are those that --help prints
_mxfp4_pack() {
  local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command='' help words=''
  ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]}
  help=$("$program" $command --help 2>/dev/null)
  if [[ $before == --backend ]]; then
    words=$("$program" backends 2>/dev/null | awk 'NR > 1 {print $1}' | sort -u)
  elif [[ $before == --* ]] && grep -qE "^  $before [^ ]+[|]" <<<"$help"; then
    words=$(sed -nE "s/^  $before ([^ =]+).*/\1/p" <<<"$help" | tr '|' ' ')
  elif [[ $before == --* ]] && grep -qE "^  $before [A-Z:]+[^a-z]" <<<"$help"; then
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    return
  elif [[ -z $command ]]; then
    words="$(sed -nE '/^Subcommands:/,$s/^  ([a-z]+) .*/\1/p' <<<"$help") --help --version"
  elif [[ $word == -* ]]; then
    words=$(grep -oE '^  (-[a-z],)?--[a-z0-9-]+' <<<"$help" | grep -oE -- '--.*')
  fi
  if [ -n "$words" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    compopt -o filenames 2>/dev/null
  fi
}
complete -F _mxfp4_pack mxfp4-pack
