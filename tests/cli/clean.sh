#!/usr/bin/env bash
# What runs left, listed and removed. usage: clean.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

many=$dir/many place=$dir/place
synth gpt-oss-20b "$many" --tiny --layers 24
options=(--backend marlin --engine vllm --threads 1)
hidden() { echo "$place/.$1.mxfp4-pack/$2"; }
make_stage() { mkdir -m 700 "$place/.$1.mxfp4-pack"; }
# an output in a staging directory. convert_hidden NAME PLACE OPTION..
convert_hidden() {
  convert "$tiny" "$dir/to-be-hidden" "${@:3}"
  make_stage "$1"
  prepare mv "$dir/to-be-hidden" "$(hidden "$1" "$2")"
}
has_a_job() { { read -r && read -r; } <"$(hidden k journal)"; }
clean() { "$program" clean "$place" "$@"; }
old() { find "$@" -exec touch -h -d '1 hour ago' {} +; }

# a conversion to $place/k that SIGKILL ended after its first job
leave() {
  for try in $(seq 200); do
    rm -rf "$place"
    mkdir "$place"
    "$program" convert "$many" "$place/k" "${options[@]}" -q &
    local pid=$!
    until has_a_job || ! kill -0 $pid; do :; done
    kill -KILL $pid
    wait $pid
    has_a_job && [ ! -e "$place/k" ] && return
  done
  return 1
} 2>/dev/null

mkdir "$place"
expect 'help has an example' 0 '^  mxfp4-pack clean ' '' "$program" clean --help
expect 'nothing was left' 0 '' ': nothing is left of interrupted runs$' clean
expect 'an OUT that is not there' 0 '' 'nothing is left of interrupted runs' "$program" clean "$dir/none"
expect 'no such folder' 2 '' 'cannot read: No such file' "$program" clean "$dir/none/out"
prepare leave
expect 'a partial output is listed' 0 'place/k: a partial output, [1-9][0-9]* finished steps; the same convert command continues, [0-9.]+ [kM]?B, changed [0-9]+ s ago$' \
  'nothing was removed; use --remove' clean
expect 'with its path' 0 '^  /.*place/\.k\.mxfp4-pack$' 'nothing was removed' clean -v
expect 'as JSON' 0 '^\{"dir":"/.*place","leftovers":\[\{"out":"/.*/place/k","kind":"resumable","path":"/.*/\.k\.mxfp4-pack","bytes":[1-9][0-9]*,"age_seconds":[0-9]+,"finished_jobs":[1-9][0-9]*,"done":"kept","in_use":"no"\}\]\}$' \
  '' clean --json -q
exec 9<"$(hidden k journal)"
flock 9
expect 'a run that goes on is said' 0 'a run is writing it' '' clean
expect 'its files stay' 0 '^kept: .*a run is writing it' '' clean --remove
expect 'they are there' 0 '' '' test -d "$(hidden k new)" -a -f "$(hidden k journal)"
exec 9>&-
expect 'a run that has ended' 0 '^removed: ' '' clean --remove
expect 'nothing stays' 0 '' '' rmdir "$place"

# at random moments of a run: OUT is absent or whole, and clean keeps what the run writes
races() {
  mkdir "$place"
  for try in $(seq 20); do
    "$program" convert "$many" "$place/k" "${options[@]}" -q 2>>"$dir/races.txt" &
    sleep 0.0$((RANDOM % 10))
    clean --remove >>"$dir/races.txt" 2>&1
    wait $! || return
    diff -r "$dir/whole" "$place/k" || return
    rm -rf "$place/k"
    [ -z "$(ls -A "$place")" ] || { ls -A "$place"; return 1; }
  done
  rmdir "$place"
}
convert "$many" "$dir/whole" "${options[@]}"
expect 'at random moments' 0 '' '' races
prepare leave
mkdir "$place/k"
make_stage other
expect 'the path of an output' 0 '^/.*/place/k: a partial output' 'nothing was removed' "$program" clean "$place/k"
expect 'what is beside it alone goes' 0 '^removed: .*place/k: a partial output, [0-9]+ finished steps, ' '' "$program" clean "$place/k/" --remove
expect 'not what is of others' 0 '^\.other\.mxfp4-pack$' '' ls -A "$place" -I k
rmdir "$place/k"
rmdir "$place/.other.mxfp4-pack"
rmdir "$place"
prepare leave
expect 'what is listed goes' 0 '^removed: .*place/k: a partial output' '' clean --remove
expect 'all of it' 0 '' '' rmdir "$place"

prepare leave
rm "$(hidden k journal)"
expect 'no lock to ask: young files stay' 0 '^kept: .*the beginning of an output.*there is no lock' '' clean --remove
old "$place"/.k*
chmod -R a-w "$(hidden k new)"
expect 'old ones go, read-only or not' 0 '^removed: .*changed 60 min ago' '' clean --remove
expect 'nothing stays of them' 0 '' '' rmdir "$place"

mkdir "$place"
convert_hidden k old --backend marlin --engine vllm
old "$place"/.k*
expect 'an old output without a journal stays' 0 "^kept: .*it has an old output, and k is not the one that replaced it; it stays" '' clean --remove
expect 'convert keeps it too' 2 '' 'k.mxfp4-pack/old: is an old output, and .*k is not the one that replaced it; move it away first' \
  "$program" convert "$tiny" "$place/k" --backend marlin --engine sglang
expect 'as it was' 0 'right' '' "$program" verify "$(hidden k old)" --source "$tiny"
rm -r "$place"/.k*
convert_hidden k new --backend marlin --engine vllm
old "$place"/.k*
expect 'nor is an output removed that no run builds' 0 "^kept: .*not mxfp4-pack's: LICENSE was not made by" '' clean --remove
expect 'convert keeps it, too' 2 '' 'mxfp4-pack/new: LICENSE was not made by mxfp4-pack, .*; move it away first' \
  "$program" convert "$tiny" "$place/k" --backend marlin --engine sglang --force
expect 'it is as it was' 0 'right' '' "$program" verify "$(hidden k new)" --source "$tiny"
rm -r "$place"/.k*

make_stage k
truncate -s 1T "$(hidden k journal)"
old "$place"/.k*
expect 'a journal of holes is nothing that was begun' 0 '^removed: .*the beginning of an output' '' clean --remove

mkdir -m 700 "$dir/elsewhere"
echo mine >"$dir/elsewhere/new"
ln -s "$dir/elsewhere" "$place/.a.mxfp4-pack"
make_stage b
ln -s "$dir/elsewhere/new" "$(hidden b journal)"
make_stage c
echo mine >"$(hidden c thesis)"
mkdir "$place/.d.mxfp4-pack"
make_stage e
mkdir "$(hidden e new)"
echo mine >"$(hidden e new)/thesis"
old "$place"/.[abcde]*
expect 'links and unknown contents stay' 0 '^kept: .*/c: .*thesis in it was not made by mxfp4-pack' '' clean --remove
cp "$dir/out.txt" "$dir/list.txt"
expect 'all five of them' 0 '^5$' '' grep -c "^kept: .*not mxfp4-pack's" "$dir/list.txt"
expect 'untouched' 0 '^mine$' '' cat "$dir/elsewhere/new" "$(hidden c thesis)" "$(hidden e new)/thesis"
expect 'nor does convert remove them' 2 '' 'e.mxfp4-pack/new: thesis was not made by' "$program" convert "$tiny" "$place/e" "${options[@]}"
expect 'nor a link' 2 '' 'a.mxfp4-pack: is a link; remove it' "$program" convert "$tiny" "$place/a" "${options[@]}"
expect 'which is there' 0 "^$dir/elsewhere\$" '' readlink "$place/.a.mxfp4-pack"

mkdir "$dir/words"
place=$dir/words
make_stage 'a"b\c'
printf '{}' >"$(hidden 'a"b\c' journal)"
names_of() { clean --json | python3 -c 'import json, sys; print(*(l["out"] for l in json.load(sys.stdin)["leftovers"]))'; }
expect 'names are escaped once' 0 '/words/a"b\\c$' '' names_of
rm -r "$place"/.a*
# a part with an empty record: with a merged OUT, and without any other description of the part
one_part() { prepare "$program" convert "$tiny" "$place/k" "${options[@]}" --part 0/2 -q && : >"$(compgen -G "$(hidden k parts)/*")/part-record"; }
rm -rf "$place" && mkdir "$place"
one_part
mv "$(hidden k parts)" "$dir/late-parts"
rmdir "$place"/.k*
prepare "$program" convert "$tiny" "$place/k" "${options[@]}" -q
make_stage k
mv "$dir/late-parts" "$(hidden k parts)"
old "$place"/.k*
expect 'an empty record: OUT says what is in the part' 0 '^removed: .*parts of an output' '' clean --remove
expect 'nothing of it stays' 1 '' '' compgen -G "$place/.k*"
rm -r "$place/k"
one_part
echo mine >"$(compgen -G "$(hidden k parts)/*")/notes.txt"
old "$place"/.k*
expect 'nothing says it' 0 "^kept: .*part-record does not say what is mxfp4-pack's; it stays" '' clean --remove
rm -r "$place"/.k*
prepare "$program" convert "$tiny" "$place/k" "${options[@]}" --part 0/2 -q
find "$(hidden k parts)" | sort >"$dir/before.txt"
echo mine >"$(compgen -G "$(hidden k parts)/*")/notes.txt"
expect "a file of others keeps a part" 0 "^kept: .*not mxfp4-pack's: .*notes.txt was not made by mxfp4-pack; it stays" '' \
  clean --remove
rm "$(hidden k parts)"/*/notes.txt
expect 'all of it, where it was' 0 '' '' diff "$dir/before.txt" <(find "$(hidden k parts)" | sort)
expect 'without it the part goes' 0 '^removed: .*parts of an output' '' clean --remove
make_stage k
mkdir "$(hidden k parts)"
echo mine >"$(hidden k parts)/notes.txt"
expect 'nor is a folder of that name ours' 0 "^kept: .*not mxfp4-pack's: .*parts/notes.txt was not made by" '' clean --remove
rm -r "$place"/.k*

if [ "$(id -u)" = 0 ]; then
  make_stage k
  chown 12345 "$place"/.k*
  old "$place"/.k*
  expect "another user's parts stay" 0 "^kept: .*not mxfp4-pack's: it belongs to user 12345" '' clean --remove
  expect 'merge says whose they are' 2 '' 'k.mxfp4-pack: belongs to user 12345, and this is user 0' "$program" merge "$place/k"
  expect 'and convert' 2 '' 'belongs to user 12345' "$program" convert "$tiny" "$place/k" "${options[@]}"
  expect 'and a part' 2 '' 'belongs to user 12345' "$program" convert "$tiny" "$place/k" "${options[@]}" --part 0/2
fi
ln -s "$place/words" "$dir/link"
expect 'a link is not followed' 2 '' 'link: is a link; use its target instead' "$program" clean "$dir/link" --remove

finish
