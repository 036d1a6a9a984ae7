#!/usr/bin/env bash
# What runs left, listed and removed. usage: clean.sh MXFP4-PACK SOURCE-DIR
. "$(dirname "$0")/lib.sh"

many=$dir/many place=$dir/place
synth gpt-oss-20b "$many" --tiny --layers 24
options=(--backend marlin --engine vllm --threads 1)
hidden() { echo "$place/.$1.mxfp4-pack.$2"; }
# an output under a hidden name, which convert itself refuses. convert_hidden NAME SUFFIX OPTION..
convert_hidden() {
  convert "$tiny" "$dir/to-be-hidden" "${@:3}"
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
expect 'with its paths' 0 '^  /.*place/\.k\.mxfp4-pack\.partial$' 'nothing was removed' clean -v
expect 'as JSON' 0 '^\{"dir":"/.*place","leftovers":\[\{"out":"/.*/place/k","kind":"resumable","paths":\["/.*\.partial","/.*\.journal"\],"bytes":[1-9][0-9]*,"age_seconds":[0-9]+,"finished_jobs":[1-9][0-9]*,"done":"kept","in_use":"no"\}\]\}$' \
  '' clean --json -q
exec 9<"$(hidden k journal)"
flock 9
expect 'a run that goes on is said' 0 'a run is writing it' '' clean
expect 'its files stay' 0 '^kept: .*a run is writing it' '' clean --remove
expect 'they are there' 0 '' '' test -d "$(hidden k partial)" -a -f "$(hidden k journal)"
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
touch "$place/.other.mxfp4-pack.journal"
expect 'the path of an output' 0 '^/.*/place/k: a partial output' 'nothing was removed' "$program" clean "$place/k"
expect 'what is beside it alone goes' 0 '^removed: .*place/k: a partial output' '' "$program" clean "$place/k/" --remove
expect 'not what is of others' 0 '^\.other\.mxfp4-pack\.journal$' '' ls -A "$place" -I k
rmdir "$place/k"
rm "$place/.other.mxfp4-pack.journal"
rmdir "$place"
prepare leave
expect 'what is listed goes' 0 '^removed: .*place/k: a partial output' '' clean --remove
expect 'all of it' 0 '' '' rmdir "$place"

prepare leave
rm "$(hidden k journal)"
expect 'no lock to ask: young files stay' 0 '^kept: .*without its journal.*there is no lock' '' clean --remove
old "$(hidden k partial)"
chmod -R a-w "$(hidden k partial)"
expect 'old ones go, read-only or not' 0 '^removed: .*changed 60 min ago' '' clean --remove
expect 'nothing stays of them' 0 '' '' rmdir "$place"

mkdir "$place"
convert_hidden k partial.old --backend marlin --engine vllm
old "$place"/.k*
expect 'an old output is listed' 0 'the old output, whose place is empty' '' clean -q
expect 'and put back' 0 '^put back: ' '' clean --remove
expect 'as it was' 0 'right' '' "$program" verify "$place/k" --source "$tiny"
convert_hidden k partial --backend marlin --engine sglang
echo mine >"$(hidden k partial)/notes.txt"
old "$place"/.k*
expect 'a file of others keeps all there' 0 '^kept: .*k: a complete output that no journal names; it stays' '' clean --remove
rm "$(hidden k partial)/notes.txt"
old "$place"/.k*
expect 'a whole output that no journal speaks of stays' 0 '^kept: .*k: a complete output that no journal names; it stays' '' clean --remove
expect 'as it was' 0 'right' '' "$program" verify "$(hidden k partial)" --source "$tiny"
rm "$(hidden k partial)/packed/packed-00001.safetensors"
old "$place"/.k*
expect 'and one that lacks a file' 0 "^kept: .*not mxfp4-pack's: neither a journal nor a file in it says" '' clean --remove
expect 'convert keeps it too' 2 '' 'partial: neither a journal nor a file in it says .*; move it away first' \
  "$program" convert "$tiny" "$place/k" --backend marlin --engine sglang --force
rm -r "$(hidden k partial)"
expect 'OUT stays' 0 'right' '' "$program" verify "$place/k" --source "$tiny"

truncate -s 1T "$(hidden k journal)"
old "$place"/.k*
expect 'a journal of holes is nothing that was begun' 0 '^removed: .*the beginning of an output' '' clean --remove

mkdir "$dir/elsewhere"
echo mine >"$dir/elsewhere/file"
ln -s "$dir/elsewhere" "$(hidden a partial)"
ln -s "$dir/elsewhere/file" "$(hidden b journal)"
mkdir "$(hidden c partial)"
echo mine >"$(hidden c partial)/file"
old "$place"/.[abc]*
expect 'links and unknown contents stay' 0 '^kept: .*/c: .*no manifest in it says that' '' clean --remove
cp "$dir/out.txt" "$dir/list.txt"
expect 'all three of them' 0 '^3$' '' grep -c "^kept: .*not mxfp4-pack's" "$dir/list.txt"
expect 'untouched' 0 '^mine$' '' cat "$dir/elsewhere/file" "$(hidden c partial)/file"
expect 'nor does convert remove them' 2 '' 'c.mxfp4-pack.partial: no manifest in it says' "$program" convert "$tiny" "$place/c" "${options[@]}"
expect 'nor a link' 2 '' 'a.mxfp4-pack.partial: it is a link; move it away first' "$program" convert "$tiny" "$place/a" "${options[@]}"
expect 'which is there' 0 "^$dir/elsewhere\$" '' readlink "$(hidden a partial)"

mkdir "$dir/words"
place=$dir/words
printf '{}' >"$(hidden 'a"b\c' journal)"
names_of() { clean --json | python3 -c 'import json, sys; print(*(l["out"] for l in json.load(sys.stdin)["leftovers"]))'; }
expect 'names are escaped once' 0 '/words/a"b\\c$' '' names_of
rm "$place"/.a*
convert_hidden k partial --backend marlin --engine vllm
echo '{}' >"$(hidden k partial)/generation_config.json"
rm "$(hidden k partial)/config.json"
old "$place"/.k*
expect 'what is left of an output with an edited small file stays' 0 '^kept: .*neither a journal nor a file in it says that a run to this place made it; it stays' '' clean --remove
expect 'it is there' 0 '^\{\}$' '' cat "$(hidden k partial)/generation_config.json"
rm -r "$(hidden k partial)"

# a part with an empty record: with a merged OUT, and without any other description of the part
one_part() { prepare "$program" convert "$tiny" "$place/k" "${options[@]}" --part 0/2 -q && : >"$(compgen -G "$(hidden k parts)/*")/part-record"; }
rm -rf "$place" && mkdir "$place"
one_part
mv "$(hidden k parts)" "$dir/late-parts"
prepare "$program" convert "$tiny" "$place/k" "${options[@]}" -q
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
mkdir "$(hidden k parts)"
echo mine >"$(hidden k parts)/notes.txt"
expect 'nor is a folder of that name ours' 0 "^kept: .*not mxfp4-pack's: .*parts/notes.txt was not made by" '' clean --remove
rm -r "$place"/.k*

if [ "$(id -u)" = 0 ]; then
  mkdir "$(hidden k parts)"
  chown 12345 "$(hidden k parts)"
  old "$place"/.k*
  expect "another user's parts stay" 0 "^kept: .*not mxfp4-pack's: it belongs to another user; it stays" '' clean --remove
  expect 'merge says whose they are' 2 '' 'k.mxfp4-pack.parts: the parts belong to user 12345, and this is user 0' "$program" merge "$place/k"
  expect 'and convert' 2 '' 'the parts belong to user 12345' "$program" convert "$tiny" "$place/k" "${options[@]}"
  expect 'and a part' 2 '' 'the parts belong to user 12345' "$program" convert "$tiny" "$place/k" "${options[@]}" --part 0/2
fi
ln -s "$place/words" "$dir/link"
expect 'a link is not followed' 2 '' 'link: is a link; use its target instead' "$program" clean "$dir/link" --remove

finish
