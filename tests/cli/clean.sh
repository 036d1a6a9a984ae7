#!/usr/bin/env bash
# What runs left, listed and removed. usage: clean.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

many=$once/many
synth gpt-oss-20b "$many" --tiny --layers 24
options=(--backend marlin --engine vllm --threads 1)
convert "$many" "$once/whole" "${options[@]}"
convert "$tiny" "$once/tiny-out" --backend marlin --engine vllm
on() { "$program" convert "$tiny" place/k "${options[@]}" "$@"; }
# Each case has a folder, `place`, whose output is k.
place() { mkdir -p place; }
hidden() { echo "place/.k.mxfp4-pack/$1"; }
stage_of() { place && mkdir -m 700 "place/.$1.mxfp4-pack"; }
clean() { "$program" clean place "$@"; }
old() { find "$@" -exec touch -h -d '1 hour ago' {} +; }
kept() { expect "$1 stays" 0 "^kept: .*$2" '' clean --remove; }
removed() {
  expect "$1 goes" 0 "^removed: .*$2" '' clean --remove
  expect 'nothing stays of it' 0 '' '' find place -mindepth 1 -name '.*'
}

# a conversion to place/k that SIGKILL ended after its first job
leave() { killed_run place place/k place/k "$program" convert "$many" place/k "${options[@]}" -q; }

test_nothing_is_left() {
  expect 'help has an example' 0 '^  mxfp4-pack clean ' '' "$program" clean --help
  place
  expect 'an empty folder' 0 '' ': nothing is left of interrupted runs$' clean
  expect 'an OUT that is not there' 0 '' 'nothing is left of interrupted runs' "$program" clean none
  expect 'no such folder' 2 '' 'cannot read: No such file' "$program" clean none/out
  ln -s place link
  expect 'a link is not followed' 2 '' 'link: is a link; use its target instead' "$program" clean link --remove
}
test_partial_output() {
  prepare leave
  expect 'is listed' 0 'place/k: a partial output, [1-9][0-9]* finished steps?; the same convert command of this version continues it if the source is unchanged, [0-9.]+ [kM]?B, changed [0-9]+ s ago$' \
    'nothing was removed; --remove discards these' clean
  expect 'with its path' 0 '^  /.*place/\.k\.mxfp4-pack$' 'nothing was removed' clean -v
  expect 'as JSON' 0 '^\{"dir":"/.*place","leftovers":\[\{"out":"/.*/place/k","kind":"resumable","path":"/.*/\.k\.mxfp4-pack","bytes":[1-9][0-9]*,"age_seconds":[0-9]+,"finished_jobs":[1-9][0-9]*,"done":"kept","in_use":"no"\}\]\}$' \
    '' clean --json -q
  exec 9<"$(hidden journal)"
  flock 9
  expect 'a run that goes on is said' 0 'a run is writing it' '' clean
  kept 'its files' 'a run is writing it'
  expect 'they are there' 0 '' '' test -d "$(hidden new)" -a -f "$(hidden journal)"
  exec 9>&-
  removed 'a run that has ended' 'place/k: a partial output'
}
test_one_output() {
  prepare leave
  mkdir place/k
  stage_of other
  expect 'the path of an output' 0 '^/.*/place/k: a partial output' 'nothing was removed' "$program" clean place/k
  expect 'what is beside it alone goes' 0 '^removed: .*place/k: a partial output, [0-9]+ finished steps?, ' '' "$program" clean place/k/ --remove
  expect 'not what is of others' 0 '^\.other\.mxfp4-pack$' '' ls -A place -I k
}
# at random moments of a run: OUT is absent or whole, and clean keeps what the run writes
races() {
  for try in $(seq 20); do
    "$program" convert "$many" place/k "${options[@]}" -q 2>>races.txt &
    sleep 0.0$((RANDOM % 10))
    clean --remove >>races.txt 2>&1
    wait $! || return
    diff -r "$once/whole" place/k || return
    rm -rf place/k
    [ -z "$(ls -A place)" ] || { ls -A place; return 1; }
  done
}
test_races() {
  place
  expect 'at random moments' 0 '' '' races
}
test_no_journal() {
  prepare leave
  rm "$(hidden journal)"
  kept 'a young one' 'the beginning of an output.*there is no lock'
  old place/.k*
  chmod -R a-w "$(hidden new)"
  removed 'an old one, read-only or not,' 'changed 60 min ago'
}
# a part that SIGKILL ended; again if it ended before
killed_part() {
  local try
  for try in $(seq 200); do
    rm -rf place && place
    "$program" convert "$many" place/k "${options[@]}" --part 0/2 -q &
    until [ -n "$(find place -name journal -size +0)" ] || ! kill -0 $!; do :; done
    kill -KILL $!
    wait $! || return 0
  done
  return 1
} 2>/dev/null
test_killed_part() {
  prepare killed_part
  other=$(echo place/.k*/parts)/.1-of-2.other.1.1.mxfp4-pack
  mkdir -m 700 "$other"
  kept 'beside one of another host, it' 'a run may be writing it: it changed less than 10 minutes ago, and there is no lock'
  rmdir "$other"
  expect 'it is listed' 0 'parts of an output.* ago$' 'nothing was removed' clean
  removed 'after it was looked at, it' 'parts of an output'
}
test_journal_of_holes() {
  stage_of k
  truncate -s 1T "$(hidden journal)"
  old place/.k*
  removed 'what was not begun' 'the beginning of an output'
}
# NAME PATTERN MESSAGE OPTION..: a whole output without a journal, under that name in the staging directory
whole_output() {
  stage_of k
  cp -r "$once/tiny-out" "$(hidden "$1")"
  old place/.k*
  kept 'it' "$2"
  expect 'convert keeps it, too' 2 '' "$3; move it away first" "$program" convert "$tiny" place/k --backend marlin --engine sglang "${@:4}"
  expect 'it is as it was' 0 '' '' diff -r "$once/tiny-out" "$(hidden "$1")"
}
test_old_output_without_a_journal() {
  whole_output old 'it has an old output, and k is not the one that replaced it; it stays' \
    'k.mxfp4-pack/old: is an old output, and .*k is not the one that replaced it'
}
test_new_output_without_a_journal() {
  whole_output new "no leftover of this user: LICENSE was not made by" 'mxfp4-pack/new: LICENSE was not made by mxfp4-pack, .*' --force
}
test_links_and_unknown_contents() {
  mkdir -m 700 elsewhere
  echo mine >elsewhere/new
  place
  ln -s "$dir/elsewhere" place/.a.mxfp4-pack
  for name in b c e; do stage_of $name; done
  ln -s "$dir/elsewhere/new" place/.b.mxfp4-pack/journal
  echo mine >place/.c.mxfp4-pack/thesis
  mkdir place/.d.mxfp4-pack
  mkdir place/.e.mxfp4-pack/new
  echo mine >place/.e.mxfp4-pack/new/thesis
  old place/.[abcde]*
  kept 'each of them' '/c: .*thesis in it was not made by mxfp4-pack'
  also "^kept: .*no leftover of this user" 5
  expect 'untouched' 0 '^mine$' '' cat elsewhere/new place/.c.mxfp4-pack/thesis place/.e.mxfp4-pack/new/thesis
  expect 'nor does convert remove them' 2 '' 'e.mxfp4-pack/new: thesis was not made by' "$program" convert "$tiny" place/e "${options[@]}"
  expect 'nor a link' 2 '' 'a.mxfp4-pack: is a link; remove it' "$program" convert "$tiny" place/a "${options[@]}"
  expect 'which is there' 0 "^$dir/elsewhere\$" '' readlink place/.a.mxfp4-pack
}
test_names_are_escaped_once() {
  stage_of 'a"b\c'
  printf '{}' >'place/.a"b\c.mxfp4-pack/journal'
  names_of() { clean --json | python3 -c 'import json, sys; print(*(l["out"] for l in json.load(sys.stdin)["leftovers"]))'; }
  expect 'in JSON' 0 '/place/a"b\\c$' '' names_of
}
one_part() { place && prepare on --part 0/2 -q; }
notes() { echo mine >"$(compgen -G "$(hidden parts)/*")/notes.txt"; }
empty_record() { : >"$(compgen -G "$(hidden parts)/*")/part-record"; }
test_part_with_an_empty_record_beside_out() {
  one_part
  empty_record
  cp -r "$once/tiny-out" place/k
  old place/.k*
  removed 'what OUT describes' 'parts of an output'
}
test_part_with_an_empty_record() {
  one_part
  empty_record
  notes
  old place/.k*
  kept 'what nothing describes' "part-record does not say what is mxfp4-pack's; it stays"
}
test_part_with_a_file_of_others() {
  one_part
  find "$(hidden parts)" | sort >before.txt
  notes
  kept 'it' "no leftover of this user: .*notes.txt was not made by mxfp4-pack; it stays"
  rm "$(hidden parts)"/*/notes.txt
  expect 'all of it, where it was' 0 '' '' diff before.txt <(find "$(hidden parts)" | sort)
  removed 'without the file it' 'parts of an output'
}
test_folder_named_parts() {
  stage_of k
  mkdir "$(hidden parts)"
  echo mine >"$(hidden parts)/notes.txt"
  kept 'it' "no leftover of this user: .*parts/notes.txt was not made by"
}
test_another_user() {
  [ "$(id -u)" = 0 ] || skip 'needs root'
  stage_of k
  chown 12345 place/.k*
  old place/.k*
  kept "another user's folder" "no leftover of this user: it belongs to user 12345"
  expect 'merge says whose it is' 2 '' 'k.mxfp4-pack: belongs to user 12345, and this is user 0' "$program" merge place/k
  expect 'and convert' 2 '' 'belongs to user 12345' on
  expect 'and a part' 2 '' 'belongs to user 12345' on --part 0/2
}
run_cases
