# Stages with their times, for .ci/run and .ci/long. usage: . stages.sh; stage NAME MINUTES COMMAND...; table
# A stage that fails ends the script, after the table of those that ran. MINUTES is its budget on two cores.
names=() took=() budget=()

stage() {
  names+=("$1") budget+=("$2")
  shift 2
  echo "== ${names[-1]}"
  local begin=$SECONDS
  took+=(failed)
  "$@"
  took[-1]=$((SECONDS - begin))
  echo "== ${names[-1]}: ${took[-1]} s"
}

table() {
  local all=0 allowed=0 i
  [ ${#names[@]} -gt 0 ] || return 0
  printf '%-28s %8s %8s\n' stage s budget
  for i in "${!names[@]}"; do
    local mark=
    if [ "${took[i]}" != failed ]; then
      all=$((all + took[i]))
      [ "${took[i]}" -le $((budget[i] * 60)) ] || mark='  over its budget'
    fi
    allowed=$((allowed + budget[i] * 60))
    printf '%-28s %8s %8s%s\n' "${names[i]}" "${took[i]}" $((budget[i] * 60)) "$mark"
  done
  printf '%-28s %8s %8s\n' 'in all' "$all" "$allowed"
}
trap table EXIT

# The README's command that begins so, word for word.
readme() { grep -m1 -E "^    $1" README.md | sed 's/^    //'; }
# install PACKAGE...: these besides the README's.
install() {
  local packages
  packages=$(readme 'sudo apt-get' | grep -o 'sudo apt-get install [^&]*')
  sudo apt-get update -qq
  eval "${packages/install -y/install -y -qq $*}" >/dev/null
}
if [ "$(id -u)" = 0 ]; then sudo() { "$@"; }; fi
