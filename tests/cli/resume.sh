#!/usr/bin/env bash
# What interrupted runs leave, and two runs at once. usage: resume.sh MXFP4-PACK SOURCE-DIR [CASE..]
. "$(dirname "$0")/lib.sh"

many=$once/many journal=.k.mxfp4-pack/journal partial=.k.mxfp4-pack/new
synth gpt-oss-20b "$many" --tiny --layers 24  # many jobs, so that one is there to be interrupted
convert "$many" "$once/whole" --backend marlin --engine vllm
source=$many
first=(--backend marlin --engine vllm --threads 1)
second=(--add --backend marlin --engine sglang --threads 1)
on() { "$program" convert "$source" k "${first[@]}" "$@"; }

# leave UNLESS-THIS-FILE START OPTIONS...: a conversion to k that SIGKILL ended when a job was done
leave() { killed_run "$2" k "$1" "$program" convert "$source" k "${@:3}" -q; }
leave_new() { prepare leave k : "${first[@]}"; }
is_right() {
  expect 'the output is right' 0 'right' '' "$program" verify k --source "$source"
  nothing "$journal" "$partial"
}
discard='or discard it: mxfp4-pack clean .*k --remove$'
others() { echo "k: an interrupted run with other options, or of another version, exists \($1\); run that command again, $discard"; }
changed() {
  echo "k: an interrupted run of another source, or of this one before it changed, exists \($1\); choose another place, $discard"
}

test_other_runs_beside_it() {
  source=source
  cp -r "$many" source
  leave_new
  expect 'a part with other options' 2 '' 'an interrupted run with other options is there; finish that one' on --link --part 0/2
  expect '--link' 2 '' "$(others 'link was false, is true')" on --link
  echo mine >source/NOTES.md
  expect 'a new companion' 2 '' "$(changed 'file NOTES.md is new')" on
  rm source/NOTES.md
  expect 'another source' 2 '' "$(changed 'file .* has changed')" "$program" convert "$many" k --backend marlin --engine vllm
  convert "$tiny" q --backend marlin --engine sglang
  unfinished='k: not finished: a run is writing it, or was interrupted; the command of that run continues it, and mxfp4-pack clean k --remove discards it$'
  expect 'verify' 2 '' "$unfinished" "$program" verify k
  expect 'inspect' 2 '' "$unfinished" "$program" inspect k
  expect 'a conversion of it' 2 '' "$unfinished" "$program" convert k other --backend marlin --engine vllm
  expect '--add' 2 '' "$unfinished" "$program" convert "$source" k "${second[@]}"
  expect 'unpack' 2 '' "$discard" "$program" unpack q k
  expect 'synth' 2 '' "$discard" "$program" synth gpt-oss-20b k --tiny
  expect 'the same command keeps what is done' 0 '' '[0-9]+ of [0-9]+ steps are done already' on
  is_right
}
test_steps_that_are_lost() {
  leave_new
  cp -r .k.mxfp4-pack lost
  rm -r "$partial"
  expect 'without the files' 0 '' 'k: [1-9][0-9]* finished steps? of the interrupted run cannot be used, because .*new is missing .* begins again$' on
  is_right
  rm -r k
  mv lost .k.mxfp4-pack
  rm "$partial/.mxfp4-pack-run"
  expect 'without the run file' 0 '' 'cannot be used, because .*new/[.]mxfp4-pack-run is missing' on
  is_right
}
test_damaged_journal() {
  leave_new
  echo '7 damaged' >>"$journal"
  expect 'is named' 0 '' 'journal: is damaged; the steps that it listed after [1-9][0-9]* finished steps? are repeated$' on
  is_right
}
test_force_discards_it() {
  leave_new
  expect 'another conversion' 0 '' 'k: [1-9][0-9]* finished steps? of an interrupted run with other inputs: discarded \(link was false, is true\)$' \
    on --link --force
  is_right
}
test_source_that_changed_with_its_time_put_back() {
  source=source
  cp -r "$many" source
  leave_new
  shard=$(ls source/*.safetensors | head -n 1)
  touch -r "$shard" time
  put_last "$shard" '\001'
  touch -r time "$shard"
  expect 'is refused' 2 '' "$(changed 'file .*[.]safetensors has changed')" on
  expect 'the command that the message names' 0 '^removed: .*/k: a partial output' '' "$program" clean k --remove
  expect 'makes room' 0 '' 'check it with' on
}
test_addition() {
  prepare leave k/packed/canary-1.safetensors "cp -r $once/whole k" "${second[@]}"
  expect 'OUT is as it was' 0 '' '' diff -r "$once/whole" k
  expect 'it continues' 0 '' '[0-9]+ of [0-9]+ steps are done already' "$program" convert "$many" k "${second[@]}"
  is_right
  expect 'with its set' 0 'marlin of sglang: right' '' "$program" verify k --source "$many"
}
test_lock() {
  mkdir -m 700 .k.mxfp4-pack
  exec 9>"$journal"
  flock 9
  expect 'of another run' 2 '' 'another run of mxfp4-pack is writing it' on
  exec 9>&-
  expect 'of the dead' 0 '' 'check it with' on
}
run_cases
