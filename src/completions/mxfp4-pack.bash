# bash completion of mxfp4-pack: commands, options and their values are those that --help prints
_mxfp4_pack() {
  local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command='' help words=''
  [[ $word == = ]] && word=''  # bash takes --opt=value for three words
  [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD - 2]}
  [[ ${COMP_WORDS[COMP_CWORD]} == = ]] && before=${COMP_WORDS[COMP_CWORD - 1]}
  ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]}
  help=$("$program" $command --help 2>/dev/null)
  if [[ $before == --backend ]]; then
    words="auto $("$program" backends 2>/dev/null | awk 'NR > 1 {print $1}' | sort -u)"
  elif [[ $command == synth && $COMP_CWORD == 2 && $word != -* ]]; then
    words=$("$program" synth --help 2>/dev/null | sed -n '/^Models:/,/^$/p' | tr -d ',' | sed 's/^Models://')
  elif [[ $before == --gpu ]]; then
    words=$("$program" backends --help 2>/dev/null | sed -n '/^GPUs:/,/^$/p' | tr -d ',()' | sed 's/^GPUs://')
  elif [[ $before == --* ]] && grep -qE "^ +$before [^ ]+[|]" <<<"$help"; then
    words=$(sed -nE "s/^ +$before ([^ ]+).*/\1/p" <<<"$help" | tr '|' '\n' | grep -v '[A-Z]')
  elif [[ $before == --* ]] && grep -qE "^ +$before [A-Z:]+( |\$)" <<<"$help"; then
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    return
  elif [[ -z $command || $command == help ]]; then
    words="$(sed -nE '/^Commands:/,/^$/s/^  ([a-z]+) .*/\1/p' <<<"$("$program" --help)") help --help --version"
  elif [[ $word == -* ]]; then
    words=$(grep -oE '^  (-[a-z], )?--[a-z0-9-]+' <<<"$help" | grep -oE -- '--.*')
  fi
  if [ -n "$words" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    compopt -o filenames 2>/dev/null
  fi
}
complete -F _mxfp4_pack mxfp4-pack
