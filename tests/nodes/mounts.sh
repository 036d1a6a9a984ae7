#!/usr/bin/env bash
# Parts by nodes that have one folder each through a mount of its own. usage: mounts.sh MXFP4-PACK SOURCE-DIR FOLDER...
# The FOLDERs are one and the same, empty; what happens in one may be seen late in another. Each node is a mount
# namespace that has its FOLDER under the same name as all others. SYNTH is what synth makes there (by default a tiny
# checkpoint), SETTLE the seconds after which all nodes see the same (4).
. "$(dirname "$0")/../cli/lib.sh"
nodes=("${@:3}")
count=5
place=$dir/shared
prepare mkdir "$place"
read -ra model <<<"${SYNTH:-deepseek-v4-flash --tiny --layers 4}"
options=(--backend marlin --engine vllm --link)

# become NODE COMMAND...: in the shared folder; the process is COMMAND's
become() {
  # shellcheck disable=SC2016
  exec unshare -m bash -c 'mount --bind "$0" "$1" && cd "$1" && shift && exec "$@"' \
    "${nodes[$1 % ${#nodes[@]}]}" "$place" "${@:2}"
}
on() { (become "$@"); }
convert_on() { on "$1" "$program" convert ckpt out "${options[@]}" "${@:2}"; }
merge() { on "$1" "$program" merge out; }
verify() { on "$1" "$program" verify out --source ckpt --part "$1/$count"; }
same() { on "$1" diff -r single out; }
is_absent_or_whole() { on "$1" sh -c '[ ! -e out ] || diff -r single out'; }
settle() { sleep "${SETTLE:-4}"; }

# start NODE PART [OPTION...]: in the background; `clock` goes before the program
clock=() started=()
start() {
  become "$1" "${clock[@]}" "$program" convert ckpt out "${options[@]}" --part "$2/$count" -q "${@:3}" \
    2>>"$dir/parts.txt" &
  started+=($!)
}
# start_all [OPTION...]: each node its part
start_all() {
  local i
  started=()
  for i in $(seq 0 $((count - 1))); do start "$i" "$i" "$@"; done
}
begin() {
  prepare on 0 sh -c 'rm -rf out .out.*'
  settle
}
# write ARRAY: parts as merge prints them, "0,2-4"
write() {
  local first last i
  while IFS=- read -r first last; do
    for i in $(seq "$first" "${last:-$first}"); do convert_on $((i + 1)) --part "$i/$count" -q || return; done
  done < <(tr , '\n' <<<"$1")
}
merged() {
  settle
  expect "$1: merge" 0 '' '' quiet merge "$2"
  settle
  expect "$1: the bytes of a single run" 0 '' '' same $(($2 + 1))
}

prepare "$program" synth "${model[0]}" "${nodes[0]}/ckpt" "${model[@]:1}" -q
settle
prepare on 0 "$program" convert ckpt single "${options[@]}" -q
settle

start_all
wait
settle
expect 'a part once more' 0 '' 'part 0 of 5: .*done already' convert_on 1 --part 0/$count
merged 'each node its part' 2

begin
start_all
sleep 0.1
kill -KILL "${started[2]}" "${started[3]}" 2>/dev/null
kill -TERM "${started[4]}" 2>/dev/null
wait 2>/dev/null
prepare on 0 sh -c 'rm -rf .out.mxfp4-pack/parts/1-of-*'
settle
missing=$(merge 1 2>/dev/null)
expect "killed nodes and a part that is gone: $missing" 0 '(^|,)[01](-|,|$)' '' echo "$missing"
expect 'no OUT yet' 1 '' '' on 2 test -e out
expect 'the missing parts again' 0 '' '' quiet write "$missing"
merged 'the missing parts again' 1

begin
start_all
command -v faketime >/dev/null && clock=(env NO_FAKE_STAT=1 faketime -f +1h)
start 3 0
start 4 1
clock=()
wait
merged 'two on one part, some an hour ahead' 3

begin
start_all --merge
wait
settle
expect 'whoever is last merges: OUT is absent or whole' 0 '' '' is_absent_or_whole 1
merged 'whoever is last merges' 0

begin
expect 'two parts' 0 '' '' quiet write 0-1
settle
expect 'a single run goes on with them' 0 '' 'steps are done already' convert_on 2
settle
expect 'to the same bytes' 0 '' '' same 3
for i in $(seq 0 $((count - 1))); do expect "verify, part $i" 0 "part $i of $count: right" '' verify "$i"; done
finish
